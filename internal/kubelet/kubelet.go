// Package kubelet stands in for the kubelet, the container runtime and the CNI plugin of a node of the lab. It registers
// the Node, and makes each pod the scheduler gives to it real: a network namespace behind a cali* veth, with echo servers
// on the container ports (TCP and UDP), and the status that a kubelet writes. Containers and volumes mean nothing to it.
//
// Annotations of a pod steer it: see AnnotationAddresses and the following.
package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	// AnnotationAddresses gives a pod addresses of the test's choice, separated by commas, rather than the node's next
	// ones. Other nodes have routes only to those of the node's own prefixes.
	AnnotationAddresses = "margay.test/addresses"
	// AnnotationFinish set to Succeeded or Failed, at first or later, ends the pod's containers: it loses its network and
	// gets that phase.
	AnnotationFinish = "margay.test/finish"
	// AnnotationLinger is how long, as in 2s, a deleted pod goes on serving before it is gone; without it, it is gone at
	// once.
	AnnotationLinger = "margay.test/linger"
	// AnnotationSilent set to true keeps the pod's status from being written: it runs, and the API server does not know.
	AnnotationSilent = "margay.test/silent"
)

// Options say which node a Kubelet serves, and how.
type Options struct {
	Client kubernetes.Interface // may register the node, and read, patch and delete pods
	Node   *lab.Node
	Log    *slog.Logger
	// Prefixes are what pods get their addresses from, one of each; default those of Node. Routes to others are the
	// caller's.
	Prefixes []netip.Prefix
	// Workers is how many pods are started or ended at the same time; default 16.
	Workers int
	// StatusDir, if not empty, makes it wait as Calico's CNI plugin does when policy_setup_timeout_seconds is set: the
	// pod's addresses are first written to Calico's annotations, and only when the endpoint's status file is in this
	// directory, or StatusTimeout (default 10 s) is over, are the servers started and the status written.
	StatusDir     string
	StatusTimeout time.Duration
}

// Kubelet runs the pods of one node until Stop. It is safe for concurrent use.
type Kubelet struct {
	Options
	pods      store
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	addresses *pool
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu   sync.Mutex
	live map[types.NamespacedName]*sandbox
	late uint64 // sandboxes whose status file did not come in time
}

// sandbox is a pod that has been made real. Only the worker that has its key touches it, but for the fields at the top.
type sandbox struct {
	uid     types.UID
	network *lab.Pod // nil: of the host's network

	addrs    []string
	servers  []*echo.Server // only those in the host's network; others end with their pod
	since    time.Time
	until    time.Time // when it was deleted and lingers
	reported bool      // its status has been written
}

// Start registers the node and begins to run its pods. The caller ends it with Stop; the pods' networks are the lab's.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	if o.Prefixes == nil {
		o.Prefixes = o.Node.PodPrefixes()
	}
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.StatusTimeout <= 0 {
		o.StatusTimeout = 10 * time.Second
	}
	k := &Kubelet{
		Options: o,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)),
		addresses: newPool(o.Prefixes),
		live:      map[types.NamespacedName]*sandbox{},
	}
	k.pods = store{queue: k.queue, pods: map[types.NamespacedName]*corev1.Pod{}}
	if err := k.register(ctx); err != nil {
		return nil, fmt.Errorf("register node %s: %w", o.Node.Name(), err)
	}
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.running.Go(func() { k.follow().RunWithContext(ctx) })
	for range o.Workers {
		k.running.Go(func() { k.work(ctx) })
	}
	return k, nil
}

// follow lists and watches the node's pods. It tries again soon after a failure: tests wait for it.
func (k *Kubelet) follow() *cache.Reflector {
	mine := fields.OneTermEqualSelector("spec.nodeName", k.Node.Name()).String()
	pods := k.Client.CoreV1().Pods(corev1.NamespaceAll)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = mine
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			return pods.Watch(ctx, o)
		},
	}, k.Client)
	return cache.NewReflectorWithOptions(lw, &corev1.Pod{}, &k.pods, cache.ReflectorOptions{
		Name:    "kubelet " + k.Node.Name(),
		Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Cap: 400 * time.Millisecond, Steps: 5, Jitter: 0.2},
	})
}

// Stop ends it and waits for what is under way. Pods stay as they are.
func (k *Kubelet) Stop() {
	k.cancel()
	k.queue.ShutDown()
	k.running.Wait()
}

// Late is how many pods were started although their endpoint's status file had not come.
func (k *Kubelet) Late() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.late
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		key, over := k.queue.Get()
		if over {
			return
		}
		again, err := k.sync(ctx, key)
		switch {
		case err != nil:
			k.Log.Debug("pod is tried again", "node", k.Node.Name(), "pod", key.String(), "error", err.Error())
			k.queue.AddRateLimited(key)
		case again > 0:
			k.queue.AddAfter(key, again)
		default:
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}
