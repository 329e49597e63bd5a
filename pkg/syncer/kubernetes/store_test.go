package kubernetes

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func TestStoreForgetsWhatIsGone(t *testing.T) {
	delivered := map[model.Key]model.Update{}
	k := podKind(t, func(us []model.Update) {
		for _, u := range us {
			if key, present := model.KeyOf(u); present {
				delivered[key] = u
			} else {
				delete(delivered, key)
			}
		}
	})
	for round := range 10 {
		for i := range 200 {
			o, err := k.converted(podAt(t, round*1000+i, true))
			if err != nil {
				t.Fatal(err)
			}
			if err := k.store.Add(o); err != nil {
				t.Fatal(err)
			}
			relabelled := podAt(t, round*1000+i, true)
			relabelled.Labels["stage"] = "2"
			if o, err = k.converted(relabelled); err != nil {
				t.Fatal(err)
			}
			if err := k.store.Update(o); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(k.shared.shapes); n != 10 {
			t.Fatalf("%d shapes of 10 workloads", n)
		}
		if round%2 == 0 {
			if err := k.store.Replace(nil, "1"); err != nil {
				t.Fatal(err)
			}
		}
		for name := range k.store.objects.All() {
			if err := k.store.Delete(&object{name: name}); err != nil {
				t.Fatal(err)
			}
		}
		if k.store.objects.Len()+len(k.store.allProblems())+len(k.shared.shapes)+len(delivered) != 0 {
			t.Fatalf("after all pods are gone: %d objects, %d problems, %d shapes, %d delivered", k.store.objects.Len(), len(k.store.allProblems()), len(k.shared.shapes), len(delivered))
		}
	}
}

func TestPodsOfAWorkloadShareWhatTheyHaveInCommon(t *testing.T) {
	var got []*model.Endpoint
	k := podKind(t, func(us []model.Update) {
		for _, u := range us {
			got = append(got, u.(model.EndpointUpdate).Endpoint)
		}
	})
	other := podAt(t, 2, false)
	other.Labels["app.kubernetes.io/version"] = "2"
	o, err := k.converted(other)
	if err != nil {
		t.Fatal(err)
	}
	_ = k.store.Add(o)
	list(t, k, 2, false)
	if len(got) != 4 { // the last is a deletion
		t.Fatalf("%d updates", len(got))
	}
	odd, a, b := got[0], got[1], got[2]
	if unsafe.SliceData(a.Profiles) != unsafe.SliceData(b.Profiles) || unsafe.SliceData(a.Ports) != unsafe.SliceData(b.Ports) {
		t.Error("profiles and ports are not shared")
	}
	if diff := cmp.Diff(a.Labels, b.Labels); diff != "" {
		t.Errorf("labels differ:\n%s", diff)
	}
	if odd.Labels["app.kubernetes.io/version"] != "2" || a.Labels["app.kubernetes.io/version"] != "1.27.3" {
		t.Error("pods with other labels got the same")
	}
}

func TestShapesDoNotMixWhatDiffers(t *testing.T) {
	s := newSharing(&recent{})
	endpoint := func(label, profile, port string) *model.Endpoint {
		u, _ := s.update(model.EndpointUpdate{Endpoint: &model.Endpoint{
			Labels: map[string]string{"a": label}, Profiles: []string{profile}, Ports: []model.NamedPort{{Name: port}},
		}})
		return u.(model.EndpointUpdate).Endpoint
	}
	for _, a := range []string{"1", "2"} {
		for _, b := range []string{"1", "2"} {
			for _, c := range []string{"1", "2"} {
				for range 2 {
					e := endpoint(a, b, c)
					if e.Labels["a"] != a || e.Profiles[0] != b || e.Ports[0].Name != c {
						t.Errorf("%s %s %s became %+v", a, b, c, e)
					}
				}
			}
		}
	}
	if len(s.shapes) != 8 {
		t.Errorf("%d shapes of 8", len(s.shapes))
	}
	s.sweep()
	if len(s.shapes) != 0 {
		t.Errorf("%d shapes that no object has", len(s.shapes))
	}
}

func TestShapesOfOneHashAreToldApart(t *testing.T) {
	s := newSharing(&recent{})
	a, sa := s.update(model.ProfileUpdate{Profile: &model.Profile{Labels: map[string]string{"a": "1"}}})
	s.shapes[s.hash(map[string]string{"a": "2"}, nil, nil)] = sa // as if both had one hash
	b, sb := s.update(model.ProfileUpdate{Profile: &model.Profile{Labels: map[string]string{"a": "2"}}})
	if a.(model.ProfileUpdate).Profile.Labels["a"] != "1" || b.(model.ProfileUpdate).Profile.Labels["a"] != "2" || sa == sb {
		t.Errorf("%v and %v", a, b)
	}
	ports := []model.NamedPort{{Name: "http"}}
	s.shapes[s.hash(map[string]string{"a": "1"}, nil, ports)] = sa
	if sh := s.same(map[string]string{"a": "1"}, nil, ports); len(sh.ports) != 1 {
		t.Errorf("ports got lost: %+v", sh)
	}
}

func TestRecentStringsAreOneAndBounded(t *testing.T) {
	r := &recent{}
	first := r.same("node-1")
	for i := range 10 * maxRecent {
		r.same("other-" + strconv.Itoa(i))
		if i%1000 == 0 {
			if again := r.same(fmt.Sprint("node-", 1)); unsafe.StringData(again) != unsafe.StringData(first) {
				t.Fatalf("a string in use was forgotten after %d others", i)
			}
		}
	}
	if n := len(r.now) + len(r.before); n > 2*maxRecent {
		t.Errorf("%d strings kept", n)
	}
}

// The consumer drains a long queue in parts, and flushes after each.
func TestAListDeletesLast(t *testing.T) {
	var sent []string
	k := podKind(t, func(us []model.Update) {
		for _, u := range us {
			sent = append(sent, short(u)[:1])
		}
	})
	replace := func(from, to int) {
		var all []any
		for i := from; i < to; i++ {
			o, err := k.converted(podAt(t, i, false))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		if err := k.store.Replace(all, "1"); err != nil {
			t.Fatal(err)
		}
	}
	replace(0, 10)
	sent = nil
	replace(10, 20)
	if got := strings.Join(sent, ""); got != strings.Repeat("+", 10)+strings.Repeat("-", 10) {
		t.Errorf("sent %s", got)
	}
}

// A server that was restored from a backup may give one version to two states of an object.
func TestStoreDoesNotTrustVersionsOfAnOlderList(t *testing.T) {
	sent := 0
	k := podKind(t, func(us []model.Update) { sent += len(us) })
	for _, tt := range []struct {
		version string
		want    int
	}{{"500", 1}, {"501", 0}, {"501", 0}, {"400", 1}, {"401", 0}, {"odd", 1}, {"402", 0}} {
		o, err := k.converted(podAt(t, 1, false))
		if err != nil {
			t.Fatal(err)
		}
		sent = 0
		if err := k.store.Replace([]any{o}, tt.version); err != nil || sent != tt.want {
			t.Errorf("list of version %s: %d sent, want %d (%v)", tt.version, sent, tt.want, err)
		}
	}
}
