// AIBrix' controllers of StormService, RoleSet and PodSet, unchanged, for the tests that need the real ones.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	orchestration "github.com/vllm-project/aibrix/api/orchestration/v1alpha1"
	"github.com/vllm-project/aibrix/pkg/config"
	"github.com/vllm-project/aibrix/pkg/controller/podset"
	"github.com/vllm-project/aibrix/pkg/controller/roleset"
	"github.com/vllm-project/aibrix/pkg/controller/stormservice"
)

func main() {
	flag.Parse() // --kubeconfig is an option of controller-runtime
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig()))
	defer klog.Flush()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, orchestration.AddToScheme, volcano.AddToScheme} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	client, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	options := ctrl.Options{Scheme: kinds, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"}
	made, err := ctrl.NewManager(client, options)
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager, config.RuntimeConfig) error{stormservice.Add, roleset.Add, podset.Add} {
		if err := add(made, config.RuntimeConfig{}); err != nil {
			return err
		}
	}
	return made.Start(ctrl.SetupSignalHandler())
}
