package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// sync brings the pod of that name to the state the API server wants, and says when to look again; 0: when it changes.
func (k *Kubelet) sync(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	want := k.pods.get(key)
	have := k.sandbox(key)
	if have != nil && (want == nil || want.UID != have.uid) {
		if err := k.tearDown(key, have); err != nil {
			return 0, err
		}
		have = nil
	}
	switch {
	case want == nil:
		return 0, nil
	case want.DeletionTimestamp != nil:
		return k.terminate(ctx, key, want, have)
	case want.Status.Phase == corev1.PodSucceeded || want.Status.Phase == corev1.PodFailed:
		return 0, k.tearDown(key, have)
	case want.Annotations[AnnotationFinish] != "":
		if err := k.tearDown(key, have); err != nil {
			return 0, err
		}
		return 0, k.reportFinished(ctx, want)
	}
	if have == nil {
		if have, err = k.setUp(ctx, want); err != nil {
			return 0, err
		}
		k.mu.Lock()
		k.live[key] = have
		k.mu.Unlock()
	}
	if !have.reported {
		if err := k.bringUp(ctx, want, have); err != nil {
			return 0, err
		}
		have.reported = true
	}
	return 0, nil
}

func (k *Kubelet) sandbox(key types.NamespacedName) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live[key]
}

// terminate ends a deleted pod, once it has lingered, and then has the API server forget it.
func (k *Kubelet) terminate(ctx context.Context, key types.NamespacedName, want *corev1.Pod, have *sandbox) (time.Duration, error) {
	if have != nil && have.until.IsZero() {
		have.until = time.Now()
		if text := want.Annotations[AnnotationLinger]; text != "" {
			linger, err := time.ParseDuration(text)
			if err != nil {
				return 0, fmt.Errorf("annotation %s: %w", AnnotationLinger, err)
			}
			have.until = have.until.Add(linger)
		}
	}
	if have != nil {
		if left := time.Until(have.until); left > 0 {
			return left, nil
		}
	}
	if err := k.tearDown(key, have); err != nil {
		return 0, err
	}
	now := int64(0)
	err := k.Client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &want.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // it is gone, or another one has its name
	}
	return 0, err
}

// setUp gives the pod its network. On error nothing is left.
func (k *Kubelet) setUp(ctx context.Context, p *corev1.Pod) (*sandbox, error) {
	s := &sandbox{uid: p.UID, since: time.Now()}
	if p.Spec.HostNetwork {
		s.addrs = texts(k.Node.Addrs())
		return s, nil
	}
	var addrs []netip.Addr
	var err error
	if text := p.Annotations[AnnotationAddresses]; text != "" {
		addrs, err = parseAddrs(text)
	} else {
		addrs, err = k.addresses.allocate()
	}
	if err != nil {
		return nil, err
	}
	s.network, err = k.Node.AddPod(p.Namespace, p.Name, addrs...)
	if err != nil {
		k.addresses.give(addrs)
		return nil, err
	}
	s.addrs = texts(addrs)
	return s, nil
}

// bringUp starts the pod's servers and tells the API server that it runs.
func (k *Kubelet) bringUp(ctx context.Context, p *corev1.Pod, s *sandbox) error {
	if k.StatusDir != "" && s.network != nil {
		if err := k.annotate(ctx, p, s); err != nil {
			return notIfGone(err)
		}
		if !k.awaitStatusFile(ctx, p) {
			k.mu.Lock()
			k.late++
			k.mu.Unlock()
		}
	}
	if err := s.serve(k.Node, p); err != nil {
		return err
	}
	if p.Annotations[AnnotationSilent] == "true" {
		return nil
	}
	return notIfGone(k.reportRunning(ctx, p, s))
}

// notIfGone drops errors that say that the pod is gone: the watch will tell too.
func notIfGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// serve starts an echo server for each container port that a socket can be opened for here.
func (s *sandbox) serve(n *lab.Node, p *corev1.Pod) error {
	if s.servers != nil {
		return nil // started by an earlier try
	}
	host := n.Host
	if s.network != nil {
		host = s.network.Host
	}
	servers := []*echo.Server{}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			listen := echo.ListenTCP
			switch port.Protocol {
			case corev1.ProtocolUDP:
				listen = echo.ListenUDP
			case corev1.ProtocolSCTP:
				continue // many kernels lack it
			}
			server, err := listen(host, uint16(port.ContainerPort))
			if err != nil {
				return errors.Join(fmt.Errorf("serve port %d of %s: %w", port.ContainerPort, p.Name, err), closeAll(servers))
			}
			servers = append(servers, server)
		}
	}
	s.servers = servers
	return nil
}

func closeAll(servers []*echo.Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// tearDown takes away what setUp and serve made; a nil sandbox is gone already.
func (k *Kubelet) tearDown(key types.NamespacedName, s *sandbox) error {
	if s == nil {
		return nil
	}
	k.mu.Lock()
	delete(k.live, key)
	k.mu.Unlock()
	if s.network == nil {
		return closeAll(s.servers)
	}
	err := k.Node.DelPod(s.network)
	k.addresses.give(s.network.Addrs())
	return err
}

// awaitStatusFile waits for the file by which the agent says that the pod's policy is enforced; false: it did not come.
func (k *Kubelet) awaitStatusFile(ctx context.Context, p *corev1.Pod) bool {
	path := filepath.Join(k.StatusDir, StatusFile(p.Namespace, p.Name))
	over := time.NewTimer(k.StatusTimeout)
	defer over.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return true
		}
		select {
		case <-again.C:
		case <-over.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// StatusFile is the name of a pod's endpoint-status file.
func StatusFile(namespace, name string) string {
	return "k8s " + url.PathEscape(namespace+"/"+name) + " eth0"
}

func texts(addrs []netip.Addr) []string {
	all := make([]string, 0, len(addrs))
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}

func parseAddrs(text string) (addrs []netip.Addr, err error) {
	for part := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationAddresses, err)
		}
		addrs = append(addrs, a)
	}
	return slices.Clip(addrs), nil
}
