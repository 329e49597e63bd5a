package kubelet

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// store holds the node's pods as the API server last told, and queues those that change.
type store struct {
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	mu    sync.Mutex
	pods  map[types.NamespacedName]*corev1.Pod
}

// get returns the pod, which is not to be changed; nil if there is none.
func (s *store) get(key types.NamespacedName) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key]
}

func pod(object any) (types.NamespacedName, *corev1.Pod, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return types.NamespacedName{}, nil, fmt.Errorf("%T is not a pod", object)
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error {
	key, p, err := pod(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pods[key] = p
	s.mu.Unlock()
	s.queue.Add(key)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	key, _, err := pod(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.pods, key)
	s.mu.Unlock()
	s.queue.Add(key)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	now := map[types.NamespacedName]*corev1.Pod{}
	for _, o := range objects {
		key, p, err := pod(o)
		if err != nil {
			return err
		}
		now[key] = p
	}
	s.mu.Lock()
	before := s.pods
	s.pods = now
	s.mu.Unlock()
	for key := range before {
		s.queue.Add(key)
	}
	for key := range now {
		s.queue.Add(key)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }
