// Volcano's controllers and its webhooks, and the controllers of Kubernetes that make pods of Deployments,
// ReplicaSets, StatefulSets and Jobs, unchanged, for the tests that need the real ones.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	controllers "volcano.sh/volcano/cmd/controller-manager/app"
	controlleroptions "volcano.sh/volcano/cmd/controller-manager/app/options"
	webhooks "volcano.sh/volcano/cmd/webhook-manager/app"
	webhookoptions "volcano.sh/volcano/cmd/webhook-manager/app/options"
	_ "volcano.sh/volcano/pkg/controllers/garbagecollector"
	_ "volcano.sh/volcano/pkg/controllers/job"
	_ "volcano.sh/volcano/pkg/controllers/podgroup"
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
		names := []string{"gc-controller", "job-controller", "pg-controller", "queue-controller"}
		chosen.AddFlags(pflag.CommandLine, names)
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
	case "workloads":
		kubeconfig := pflag.String("kubeconfig", "", "how to reach the API server")
		run = func() error { return runWorkloads(*kubeconfig) }
	default:
		fail(fmt.Errorf("usage: volcano controllers|webhooks|workloads OPTIONS"))
	}
	if err := pflag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	if err := run(); err != nil {
		fail(err)
	}
}

// runWorkloads runs the controllers of kube-controller-manager that make pods, until the process is killed.
func runWorkloads(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	made := informers.NewSharedInformerFactory(client, 0)
	apps, core := made.Apps().V1(), made.Core().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return err
	}
	jobs, err := job.NewController(ctx, core.Pods(), made.Batch().V1().Jobs(), client)
	if err != nil {
		return err
	}
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaset.BurstReplicas)
	sets := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	made.Start(ctx.Done())
	for _, start := range []func(context.Context, int){deployments.Run, jobs.Run, replicas.Run, sets.Run} {
		go start(ctx, 1)
	}
	select {}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
