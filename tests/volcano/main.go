// Volcano's job controller, unchanged, for the lane that needs the real one.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"volcano.sh/volcano/cmd/controller-manager/app"
	"volcano.sh/volcano/cmd/controller-manager/app/options"
	_ "volcano.sh/volcano/pkg/controllers/garbagecollector"
	_ "volcano.sh/volcano/pkg/controllers/job"
	_ "volcano.sh/volcano/pkg/controllers/queue"
)

func main() {
	chosen := options.NewServerOption()
	chosen.AddFlags(pflag.CommandLine, []string{"gc-controller", "job-controller", "queue-controller"})
	pflag.Parse()
	defer klog.Flush()
	if err := app.Run(chosen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
