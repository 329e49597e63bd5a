package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// One bad entry is one problem, and nothing else is disturbed.
func TestOneBadEntryIsOneProblem(t *testing.T) {
	felixKey, felixText := felix("x", "Info")
	for _, tt := range []struct{ key, value, want string }{
		{felixKey, "{", "FelixConfiguration x: rejected: the value is no object in JSON"},
		{felixKey, "[]", "the value is no object in JSON"},
		{felixKey, "\xff\x00", "the value is no object in JSON"},
		{felixKey, strings.Repeat("[", 1<<20), "the value is no object in JSON"},
		{felixKey, strings.Replace(felixText, `"x"`, `"y"`, 1), `metadata.name is "y", and the key says "x"`},
		{felixKey, strings.Replace(felixText, "FelixConfiguration", "Tier", 1), `kind is "Tier", and the key says "FelixConfiguration"`},
		{felixKey, strings.Replace(felixText, "projectcalico.org/v3", "v1", 1), `apiVersion is "v1", and the key says "projectcalico.org/v3"`},
		{felixKey, strings.Replace(felixText, `"name": "x"`, `"namespace": "x"`, 1), `metadata.namespace is "x", and the key says ""`},
		{felixKey, strings.Replace(felixText, `"name": "x"`, `"uid": "x"`, 1), "metadata.name: Required value"},
		{felixKey, strings.Replace(felixText, `"all()"`, `"has("`, 1), "spec.nodeSelector"},
		{felixKey, felixText + strings.Repeat(" ", maxValue), "the object has 1573025 bytes, more than 1572864"},
		{felixKey + "/y", felixText, `the key "/calico/resources/v3/projectcalico.org/felixconfigurations/x/y" names no object`},
		{root + "felixconfigurations/", felixText, "names no object, want /calico/resources/v3/projectcalico.org/PLURAL/NAME"},
		{root + "felixconfigurations", felixText, "names no object"},
		{root + "felixconfigurations/a%2Fb", strings.Replace(felixText, `"x"`, `"a/b"`, 1), "metadata.name: Invalid value"},
		{root + "felixconfigurations/" + strings.Repeat("x", maxKey), felixText, "the key has 571 bytes, more than 512"},
		{root + "hostendpoints/h", "{}", "HostEndpoint h: rejected: projectcalico.org/v3 HostEndpoint is not a kind Margay reads, so it is not enforced"},
	} {
		t.Run(fmt.Sprintf("%.40q", tt.want), func(t *testing.T) {
			f := newReady()
			f.write(tt.key, tt.value)
			w := follow(t, f)
			w.awaits("a=Info b=Info")
			w.until("one problem", func() bool { return len(w.reports.Problems()) == 1 })
			if p := w.reports.Problems(); !strings.Contains(p[0].String(), tt.want) || strings.Contains(p[0].String(), "\n") || len(p[0].String()) > 600 {
				t.Errorf("%v, want %s", p, tt.want)
			}
			f.write(tt.key, "")
			w.until("no problem", func() bool { return len(w.reports.Problems()) == 0 })
			w.awaits("a=Info b=Info")
		})
	}
}

// What became invalid stays as it was last good, through a list, too; deleting it removes both.
func TestTheLastGoodVersionStays(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	key, _ := felix("a", "")
	f.write(key, "{")
	stays := func() bool {
		p := w.reports.Problems()
		return len(p) == 1 && strings.Contains(p[0].Reason, "the last good version stays in force")
	}
	w.until("problem", stays)
	w.awaits("a=Info b=Info")
	f.compact()
	f.set(true, nil)
	w.until("another list", func() bool { return w.row().Lists == 2 })
	w.until("problem", stays)
	w.awaits("a=Info b=Info")
	putFelix(f, "a", "Debug")
	w.awaits("a=Debug b=Info")
	f.write(key, "{")
	w.until("problem", stays)
	f.write(key, "")
	w.awaits("b=Info")
	w.until("no problem", func() bool { return len(w.reports.Problems()) == 0 })
}

// Another history has other revisions of the same objects.
func TestTheLastGoodVersionStaysInAnotherHistory(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	key, _ := felix("a", "")
	f.write(key, "{")
	f.set(true, func() {
		f.cluster++
		for i := range f.history {
			f.history[i].created += 100
		}
	})
	w.until("another list", func() bool { return w.row().Lists == 2 })
	w.awaits("a=Info b=Info")
	if p := w.reports.Problems(); len(p) != 1 || !strings.HasSuffix(p[0].Reason, "the last good version stays in force") {
		t.Errorf("%v", p)
	}
}

// An object that is deleted and made again under its name, invalid, has no version in force, whether or not its deletion was seen.
// The text may be one that was invalid before.
func TestNoGoodVersionComesFromAPredecessor(t *testing.T) {
	for _, missed := range []bool{false, true} {
		f := newReady()
		w := follow(t, f)
		w.awaits("a=Info b=Info")
		a, _ := felix("a", "")
		b, _ := felix("b", "")
		f.write(a, "{")
		problems := func(stay, gone int) func() bool {
			return func() bool {
				for _, p := range w.reports.Problems() {
					if strings.Contains(p.Reason, "the last good version stays in force") {
						stay--
					} else {
						gone--
					}
				}
				return stay == 0 && gone == 0
			}
		}
		w.until("problem", problems(1, 0))
		f.set(missed, func() {
			if missed {
				f.fail = errors.New("away")
			}
		})
		f.write(a, "", b, "{")
		f.write(a, "{")
		if missed {
			f.compact()
			f.set(true, func() { f.fail = nil })
		}
		w.awaits("b=Info")
		w.until("problems", problems(1, 1))
		putFelix(f, "a", "Debug")
		w.awaits("a=Debug b=Info")
		w.until("problem", problems(1, 0))
		if k := w.row(); k.Objects != 2 {
			t.Errorf("%+v", k)
		}
	}
}

// The kinds come from the registry: all that Calico keeps in etcd and that are read, each with its scope.
func TestKindsAreThoseOfTheRegistry(t *testing.T) {
	l := newLayout(kinds.All(validate.Pods{}))
	for _, k := range kinds.Read(validate.Pods{}) {
		isStored := false
		for _, gv := range k.Versions {
			isStored = isStored || gv == stored
		}
		key, want := root+k.Resource+"/n", objectKey{kind: l.byPlural[k.Resource], name: "n"}
		if k.Namespaced {
			key, want.namespace = root+k.Resource+"/ns/n", "ns"
		}
		o, ours, reason := l.object(key)
		if isStored && (!ours || reason != "" || o != want || l.kinds[o.kind].Name != k.Name) {
			t.Errorf("%s: %v %t %s", key, o, ours, reason)
		}
	}
	if _, ours, _ := l.object("/registry/felixconfigurations/x"); ours {
		t.Error("a key of another tree is ours")
	}
}

func TestStatusNamesEveryKind(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	w.until("kinds", func() bool { return len(w.reports.Kinds()) > 1 })
	for _, k := range w.reports.Kinds() {
		if k.State != syncer.KindSynced || !k.Listed || !k.Required || k.Kind == "FelixConfiguration" && k.Objects != 2 {
			t.Errorf("%+v", k)
		}
	}
}

// Some releases of Calico keep a policy of the tier default under a key that names the tier, while the object has the name that its author
// gave it. It is known by its key, under which it is deleted.
func TestAPolicyWhoseKeyNamesItsTier(t *testing.T) {
	const value = `{"apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy", "metadata": {"name": "lock", "namespace": "shop"}, "spec": {"types": ["Ingress"]}}`
	o := newObjects(newLayout(kinds.All(validate.Pods{})))
	name := func(us []model.Update) (name string, present bool) {
		t.Helper()
		if len(us) != 1 {
			t.Fatalf("%d updates, problems %v", len(us), o.drainFindings())
		}
		u := us[0].(model.PolicyUpdate)
		return u.Key.Name, u.Policy != nil
	}
	us, tiered, _ := o.put(nil, entry{key: root + "networkpolicies/shop/default.lock", value: []byte(value)})
	if n, present := name(us); n != "default.lock" || !present {
		t.Errorf("%s, present %t", n, present)
	}
	us, _, _ = o.put(nil, entry{key: root + "networkpolicies/shop/lock", value: []byte(value)})
	if n, _ := name(us); n != "lock" {
		t.Errorf("its copy is %s", n)
	}
	if n, present := name(o.remove(nil, tiered)); n != "default.lock" || present {
		t.Errorf("%s is gone, present %t", n, present)
	}
	for _, key := range []string{"networkpolicies/shop/default.key", "networkpolicies/shop/secure.lock", "networksets/shop/default.lock"} {
		if us, _, _ := o.put(nil, entry{key: root + key, value: []byte(value)}); len(us) > 0 {
			t.Errorf("%s is used", key)
		}
	}
}
