package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/node"
)

// TestTheChoiceOfAFallbackIsReported: by the log, a component of readiness that is ready, and an Event on the Node; the preferred dataplane and one
// that was configured are no news.
func TestTheChoiceOfAFallbackIsReported(t *testing.T) {
	const why = "TCX links: missing (Linux 6.6)"
	for how, want := range map[inspect.ChoiceKind]int{inspect.ChoiceFallback: 1, inspect.ChoicePreferred: 0, inspect.ChoiceConfigured: 0} {
		synctest.Test(t, func(t *testing.T) {
			scheme, types := runtime.NewScheme(), runtime.NewScheme()
			if metav1.AddMetaToScheme(scheme) != nil || eventsv1.AddToScheme(types) != nil {
				t.Fatal("no schemes")
			}
			server := dynamicfake.NewSimpleDynamicClient(types)
			about := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}})
			var said bytes.Buffer
			log := slog.New(slog.NewTextHandler(&said, nil))
			p := &process{config: config.Config{Node: "a"}, log: log, health: health.New(time.Now),
				plane:  &node.Dataplane{Chosen: inspect.Choice{How: how, Reason: why}},
				events: events.New(events.Options{Node: "a", Objects: server, Metadata: about, Log: log})}
			p.reportChoice("iptables-legacy")

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.events.Run(ctx) }()
			p.events.Report(func(func(events.Item) bool) {}, 1)
			time.Sleep(5 * time.Minute)
			list, err := server.Resource(eventsv1.SchemeGroupVersion.WithResource("events")).List(t.Context(), metav1.ListOptions{})
			cancel()
			if err != nil || <-ended != nil || len(list.Items) != want {
				t.Fatalf("%s: %d Events, want %d: %v", how, len(list.Items), want, err)
			}
			if parts := p.health.Components(); len(parts) != want || want == 0 && said.Len() > 0 {
				t.Fatalf("%s: %d components, want %d, and the log has %s", how, len(parts), want, &said)
			}
			if want == 0 {
				return
			}
			var event eventsv1.Event
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[0].Object, &event); err != nil {
				t.Fatal(err)
			}
			if r := event.Regarding; r.Kind != "Node" || r.Name != "a" || event.Reason != events.ReasonDataplane {
				t.Errorf("the Event is about %s %s, reason %s", r.Kind, r.Name, event.Reason)
			}
			part := p.health.Components()[0]
			if part.Name != "dataplane" || !part.Ready || !part.Live {
				t.Errorf("the component is %+v", part)
			}
			for what, text := range map[string]string{"the Event": event.Note, "the component": part.Detail, "the log": said.String()} {
				if !strings.Contains(text, "iptables-legacy") || !strings.Contains(text, why) {
					t.Errorf("%s says %q", what, text)
				}
			}
		})
	}
}
