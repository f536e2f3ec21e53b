// Volcano's job controller and its webhooks, unchanged, for the tests that need the real ones.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	controllers "volcano.sh/volcano/cmd/controller-manager/app"
	controlleroptions "volcano.sh/volcano/cmd/controller-manager/app/options"
	webhooks "volcano.sh/volcano/cmd/webhook-manager/app"
	webhookoptions "volcano.sh/volcano/cmd/webhook-manager/app/options"
	_ "volcano.sh/volcano/pkg/controllers/garbagecollector"
	_ "volcano.sh/volcano/pkg/controllers/job"
	_ "volcano.sh/volcano/pkg/controllers/queue"
	_ "volcano.sh/volcano/pkg/webhooks/admission/jobs/mutate"
	_ "volcano.sh/volcano/pkg/webhooks/admission/jobs/validate"
)

func main() {
	defer klog.Flush()
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var run func() error
	switch role {
	case "controllers":
		chosen := controlleroptions.NewServerOption()
		chosen.AddFlags(pflag.CommandLine, []string{"gc-controller", "job-controller", "queue-controller"})
		run = func() error { return controllers.Run(chosen) }
	case "webhooks":
		chosen := webhookoptions.NewConfig()
		chosen.AddFlags(pflag.CommandLine)
		run = func() error {
			if err := chosen.ParseCAFiles(nil); err != nil {
				return err
			}
			return webhooks.Run(chosen)
		}
	default:
		fail(fmt.Errorf("usage: volcano controllers|webhooks OPTIONS"))
	}
	if err := pflag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	if err := run(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
