// An MQTT broker whose limits are set by flags, as a part of tests: mochi-mqtt in the memory.
package main

import (
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

// older refuses clients of MQTT 5, with the answer of MQTT 3.1.1.
type older struct{ mqtt.HookBase }

func (*older) ID() string              { return "older" }
func (*older) Provides(hook byte) bool { return hook == mqtt.OnConnect }
func (*older) OnConnect(client *mqtt.Client, _ packets.Packet) error {
	if client.Properties.ProtocolVersion > 4 {
		client.Net.Conn.Write([]byte{0x20, 2, 0, 1})
		return packets.ErrUnsupportedProtocolVersion
	}
	return nil
}

// bridged drops the retain flag of what nodes publish, as a bridge from their broker may.
type bridged struct{ mqtt.HookBase }

func (*bridged) ID() string              { return "bridged" }
func (*bridged) Provides(hook byte) bool { return hook == mqtt.OnPublish }
func (*bridged) OnPublish(_ *mqtt.Client, packet packets.Packet) (packets.Packet, error) {
	topic := packet.TopicName
	if strings.HasPrefix(topic, "vigil/v1/nodes/") && !strings.HasSuffix(topic, "/echo") {
		packet.FixedHeader.Retain = false
	}
	return packet, nil
}

func main() {
	port := flag.Int("port", 0, "where it listens, on 127.0.0.1")
	retain := flag.Bool("retain", true, "keep retained messages")
	qos := flag.Uint("qos", 2, "the highest QoS")
	largest := flag.Uint("largest", 0, "bytes of the largest packet; 0: any")
	onlyOlder := flag.Bool("only-3.1.1", false, "refuse MQTT 5")
	dropsRetain := flag.Bool("drops-retain", false, "take the retain flag off what nodes publish")
	flag.Parse()

	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumQos = byte(*qos)
	capabilities.MaximumPacketSize = uint32(*largest)
	capabilities.MaximumMessageExpiryInterval = 0
	if !*retain {
		capabilities.RetainAvailable = 0
	}
	level := slog.HandlerOptions{Level: slog.LevelInfo}
	server := mqtt.New(&mqtt.Options{
		Capabilities: capabilities,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, &level)),
	})
	hooks := []mqtt.Hook{new(auth.AllowHook)}
	if *onlyOlder {
		hooks = append(hooks, new(older))
	}
	if *dropsRetain {
		hooks = append(hooks, new(bridged))
	}
	for _, hook := range hooks {
		if err := server.AddHook(hook, nil); err != nil {
			log.Fatal(err)
		}
	}
	address := fmt.Sprintf("127.0.0.1:%d", *port)
	if err := server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: address})); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	if err := server.Close(); err != nil {
		log.Fatal(err)
	}
}
