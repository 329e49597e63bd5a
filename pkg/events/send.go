package events

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/margay-project/margay/pkg/kinds"
)

const (
	controller  = "margay" // who reports, as kubectl shows it
	maxInstance = 128
	maxName     = 253

	callTimeout = 10 * time.Second
	deniedFor   = 30 * time.Minute // before a forbidden request is tried again
)

// result is what became of a message. Without an error and not reported: there is no object to report to, it is gone or about
// to go.
type result struct {
	exists   bool  // the event is there, written now or earlier, by this agent or another
	identity error // why the object's UID is not known; if it is forbidden the event is written without
	event    error // why the event could not be written
}

// sender writes events.
type sender struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	node     string
}

// send writes the event of a message.
func (s *sender) send(ctx context.Context, about subject, m message, now time.Time) result {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, known := resourceOf(about.kind)
	if !known {
		return result{identity: fmt.Errorf("write an event on %s: the API resource of the kind is not known to the agent", about)}
	}
	o, err := s.identify(ctx, r, about)
	if apierrors.IsNotFound(err) {
		return result{}
	}
	res := result{identity: err}
	if err != nil && !apierrors.IsForbidden(err) {
		return res
	}
	event := s.event(r, about, o, m, now)
	object, err := untyped(event)
	if err == nil {
		_, err = s.objects.Resource(eventResource).Namespace(event.Namespace).Create(ctx, object, metav1.CreateOptions{})
	}
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		res.exists = true
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
	default:
		res.event = fmt.Errorf("write an event on %s: %w", about, err)
	}
	return res
}

// object has the fields of an event about its object, besides the name. Empty: not known.
type object struct {
	version    string // as an apiVersion
	uid        types.UID
	generation int64
}

// identify asks for the object's UID, by which kubectl finds the events on it.
func (s *sender) identify(ctx context.Context, r kinds.Kind, about subject) (o object, err error) {
	for _, gv := range r.Versions {
		var found *metav1.PartialObjectMetadata
		if getter := s.metadata.Resource(gv.WithResource(r.Resource)); r.Namespaced {
			found, err = getter.Namespace(about.namespace).Get(ctx, about.name, metav1.GetOptions{})
		} else {
			found, err = getter.Get(ctx, about.name, metav1.GetOptions{})
		}
		if err == nil {
			return object{version: gv.String(), uid: found.UID, generation: found.Generation}, nil
		}
		o.version = gv.String()
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	return o, fmt.Errorf("ask for the UID of %s, for an event on it: %w", about, err)
}

// event is written beside its object. Its name follows from its content, so that no copy is added when an agent sends it
// again: this one after a restart, or another one.
func (s *sender) event(r kinds.Kind, about subject, o object, m message, now time.Time) *eventsv1.Event {
	namespace := about.namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Name: eventName(about, o, m), Namespace: namespace},
		EventTime:           metav1.MicroTime{Time: now},
		ReportingController: controller,
		ReportingInstance:   clip(s.node, maxInstance),
		Type:                corev1.EventTypeWarning,
		Reason:              m.reason,
		Action:              m.action,
		Note:                m.note,
		Regarding: corev1.ObjectReference{
			APIVersion: o.version, Kind: r.Name,
			Namespace: about.namespace, Name: about.name, UID: o.uid,
		},
	}
}

// eventName is a DNS subdomain that begins as the object's name does.
func eventName(about subject, o object, m message) string {
	sum := sha256.New()
	for _, part := range []string{about.kind, about.namespace, about.name, string(o.uid), strconv.FormatInt(o.generation, 10),
		m.reason, m.note, m.version} {
		fmt.Fprintf(sum, "%d %s\n", len(part), part)
	}
	hash := "." + hex.EncodeToString(sum.Sum(nil))[:16]
	name := about.name[:min(len(about.name), maxName-len(hash))]
	return strings.TrimRight(name, ".-") + hash
}

// untyped is an object, with its kind, for a client that knows no types: the typed clients of client-go bring the types of
// all of Kubernetes into the agent's memory.
func untyped(object runtime.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: fields}, err
}

// upTo is a random part of d.
func upTo(d time.Duration) time.Duration { return rand.N(d) + 1 }
