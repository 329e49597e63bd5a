package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/internal/testutil"
)

func mustEnsure(t *testing.T, l *Links, ifindex uint32, want Change) {
	t.Helper()
	got, err := l.Ensure(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("Ensure(%d): %v, want %v", ifindex, got, want)
	}
}

// mustRun checks that exactly these programs are attached to the interface and listed.
func mustRun(t *testing.T, l *Links, ifindex uint32, p Programs) {
	t.Helper()
	list, err := l.List()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(a Attachment) bool { return a.Ifindex == ifindex })
	if i < 0 {
		t.Fatalf("interface %d is not listed: %+v", ifindex, list)
	}
	a := list[i]
	if !a.Ingress.Attached || a.Ingress.Program != id(t, p.FromPod) || !a.Egress.Attached || a.Egress.Program != id(t, p.ToPod) {
		t.Errorf("interface %d: %+v, want programs %d and %d", ifindex, a, id(t, p.FromPod), id(t, p.ToPod))
	}
}

func TestEnsureAttachesOnce(t *testing.T) {
	_, dir := room(t)
	p := programs(t)
	l, ifindex := newLinks(t, dir, p), veth(t, "calitest1")
	mustEnsure(t, l, ifindex, Attached)
	mustEnsure(t, l, ifindex, Unchanged)
	mustRun(t, l, ifindex, p)
	if err := l.Detach(ifindex); err != nil {
		t.Fatal(err)
	}
	if list, err := l.List(); err != nil || len(list) != 0 {
		t.Errorf("after Detach: %+v (%v)", list, err)
	}
	for _, key := range []tcxKey{{ifindex, ingress}, {ifindex, egress}} {
		result, err := link.QueryPrograms(link.QueryOptions{Target: int(ifindex), Attach: key.attachType()})
		if err != nil || len(result.Programs) != 0 {
			t.Errorf("after Detach %v: %+v (%v)", key, result, err)
		}
	}
}

func TestLinksOutliveTheAgentAndAreUpdatedInPlace(t *testing.T) {
	_, dir := room(t)
	l, ifindex := newLinks(t, dir, programs(t)), veth(t, "calitest1")
	mustEnsure(t, l, ifindex, Attached)
	before, err := l.List()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := programs(t)
	l = newLinks(t, dir, p)
	mustEnsure(t, l, ifindex, Updated)
	mustEnsure(t, l, ifindex, Unchanged)
	mustRun(t, l, ifindex, p)
	after, err := l.List()
	if err != nil || after[0].Ingress.Link != before[0].Ingress.Link || after[0].Egress.Link != before[0].Egress.Link {
		t.Errorf("links were replaced: %+v, then %+v (%v)", before, after, err)
	}
	p = programs(t)
	if err := l.SetPrograms(p); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, l, ifindex, Updated)
	mustRun(t, l, ifindex, p)
}

func TestLinksOfAnOlderLayoutMove(t *testing.T) {
	_, root := room(t)
	older, dir := filepath.Join(root, "v0"), filepath.Join(root, "v1")
	l, ifindex := newLinks(t, older, programs(t)), veth(t, "calitest1")
	mustEnsure(t, l, ifindex, Attached)
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := programs(t)
	l = newLinks(t, dir, p, older)
	mustEnsure(t, l, ifindex, Updated)
	mustRun(t, l, ifindex, p)
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	if names, err := pinNames(older); err != nil || len(names) != 0 {
		t.Errorf("left in the older directory: %v (%v)", names, err)
	}
	if names, err := pinNames(dir); err != nil || len(names) != 2+allHooks {
		t.Errorf("in the new directory: %v (%v)", names, err)
	}
}

func TestDetachedByHandIsRepaired(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, path string){
		"pin removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"link detached": func(t *testing.T, path string) {
			opened, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			if err := opened.(interface{ Detach() error }).Detach(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := room(t)
			p := programs(t)
			l, ifindex := newLinks(t, dir, p), veth(t, "calitest1")
			mustEnsure(t, l, ifindex, Attached)
			for _, key := range []tcxKey{{ifindex, ingress}, {ifindex, egress}} {
				harm(t, filepath.Join(dir, key.pin()))
				mustEnsure(t, l, ifindex, Repaired)
				mustEnsure(t, l, ifindex, Unchanged)
				mustRun(t, l, ifindex, p)
			}
			if _, err := ensureAll(l); err != nil {
				t.Fatal(err)
			}
			harm(t, filepath.Join(dir, "judge-forward-ip4-1"))
			for _, want := range []Change{Repaired, Unchanged} {
				if got, err := ensureAll(l); err != nil || got != want {
					t.Errorf("ensureAll: %v (%v), want %v", got, err, want)
				}
			}
		})
	}
}

func TestAVanishedInterfaceIsReportedAndItsPinsRemoved(t *testing.T) {
	_, dir := room(t)
	p := programs(t)
	l, kept, gone := newLinks(t, dir, p), veth(t, "calitest1"), veth(t, "calitest2")
	mustEnsure(t, l, kept, Attached)
	mustEnsure(t, l, gone, Attached)
	removeLink(t, gone)
	if _, err := l.Ensure(gone); !errors.Is(err, ErrGone) {
		t.Errorf("Ensure of a vanished interface: %v, want ErrGone", err)
	}
	for ifindex, want := range map[uint32]bool{kept: false, gone: true, gone + 1000: false} {
		if is, err := l.IsGone(ifindex); is != want || err != nil {
			t.Errorf("interface %d is gone: %v (%v), want %v", ifindex, is, err, want)
		}
	}
	mustEnsure(t, l, veth(t, "calitest2"), Attached) // the same name again
	third := veth(t, "calitest3")
	mustEnsure(t, l, third, Attached)
	removeLink(t, third)
	for _, want := range [][]uint32{{gone, third}, nil} {
		if removed, err := l.RemoveStale(); err != nil || !slices.Equal(removed, want) {
			t.Errorf("RemoveStale: %v (%v), want %v", removed, err, want)
		}
	}
	mustRun(t, l, kept, p)
	if names, err := pinNames(dir); err != nil || len(names) != 4 {
		t.Errorf("pins: %v (%v)", names, err)
	}
}

func TestOthersProgramsStayAndRunAfterOurs(t *testing.T) {
	_, dir := room(t)
	ifindex := veth(t, "calitest1")
	other, err := link.AttachTCX(link.TCXOptions{
		Interface: int(ifindex), Program: program(t, ebpf.SchedCLS, 0), Attach: ebpf.AttachTCXIngress,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l := newLinks(t, dir, programs(t))
	mustEnsure(t, l, ifindex, Attached)
	list, err := l.List()
	if err != nil || list[0].Ingress.Before != 0 || list[0].Ingress.After != 1 {
		t.Fatalf("%+v (%v)", list, err)
	}
	late, err := link.AttachTCX(link.TCXOptions{
		Interface: int(ifindex), Program: program(t, ebpf.SchedCLS, 0), Attach: ebpf.AttachTCXEgress, Anchor: link.Head(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if list, err = l.List(); err != nil || list[0].Egress.Before != 1 {
		t.Errorf("a program before ours is not reported: %+v (%v)", list, err)
	}
	if fromPod, toPod, err := l.Before(ifindex); err != nil || len(fromPod) != 0 || len(toPod) != 1 {
		t.Errorf("%d programs of others are before from_pod and %d before to_pod (%v)", fromPod, toPod, err)
	}
	if faults := l.Faults(ifindex); len(faults) != 1 || !strings.Contains(faults[0], fmt.Sprintf("tcx/egress: programs of others run before ours (id %d)", list[0].Egress.Overtaking[0])) {
		t.Errorf("faults: %q", faults)
	}
	if err := l.Detach(ifindex); err != nil {
		t.Fatal(err)
	}
	if info, err := other.Info(); err != nil || info.TCX().Ifindex != ifindex {
		t.Errorf("the other's link: %+v (%v)", info, err)
	}
}

// allHooks is how many links there are at netfilter hooks, by EnsureHooks and EnsureEarly.
const allHooks = 8

// ensureAll ensures all of them.
func ensureAll(l *Links) (Change, error) {
	judge, err := l.EnsureHooks()
	guard, earlyErr := l.EnsureEarly()
	return max(judge, guard), errors.Join(err, earlyErr)
}

// hookPrograms are the programs at all our hooks, by pin.
func hookPrograms(t *testing.T, dir string) map[string]uint32 {
	t.Helper()
	names, err := pinNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint32{}
	for _, name := range names {
		opened, err := link.LoadPinnedLink(filepath.Join(dir, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := opened.Info()
		if err != nil {
			t.Fatal(err)
		}
		opened.Close()
		at[name] = uint32(info.Program)
	}
	return at
}

func TestNetfilterProgramsAreSucceededWithoutAGap(t *testing.T) {
	_, dir := room(t)
	first, second := programs(t), programs(t)
	l := newLinks(t, dir, first)
	for _, want := range []Change{Attached, Unchanged} {
		if got, err := ensureAll(l); err != nil || got != want {
			t.Fatalf("ensureAll: %v (%v), want %v", got, err, want)
		}
	}
	l.Close() // the agent restarts
	l = newLinks(t, dir, second)
	for _, want := range []Change{Updated, Unchanged} {
		if got, err := ensureAll(l); err != nil || got != want {
			t.Fatalf("after a restart: %v (%v), want %v", got, err, want)
		}
	}
	at := hookPrograms(t, dir)
	for name, runs := range at {
		place, want := "-2", id(t, second.Judge) // before filter
		switch {
		case strings.HasPrefix(name, "judge-local_in"):
			place = "-102" // behind ip_vs
		case strings.HasPrefix(name, "guard-pre_routing"):
			place, want = "-501", id(t, second.Guard) // before conntrack
		}
		if runs != want || !strings.HasSuffix(name, place) {
			t.Errorf("%s runs %d, want %d at the second place", name, runs, want)
		}
	}
	if len(at) != allHooks {
		t.Errorf("%d hooks, want PRE_ROUTING, FORWARD, LOCAL_IN and LOCAL_OUT, for both families: %v", len(at), at)
	}
	if err := l.DetachHooks(); err != nil {
		t.Fatal(err)
	}
	if at := hookPrograms(t, dir); len(at) != 0 {
		t.Errorf("left: %v", at)
	}
	if got, err := ensureAll(l); err != nil || got != Attached || len(hookPrograms(t, dir)) != allHooks {
		t.Errorf("attached again: %v (%v)", got, err)
	}
}

// An agent that died between attaching the successor and removing the predecessor.
func TestHalfASuccessionIsFinished(t *testing.T) {
	_, dir := room(t)
	first, second, third := programs(t), programs(t), programs(t)
	l := newLinks(t, dir, first)
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = newLinks(t, dir, second)
	h := l.wantedEarly()[0]
	if name, err := l.attachHook(h); err != nil || name != h.pin(h.first-1) {
		t.Fatalf("%s (%v)", name, err)
	}
	l.Close()
	l = newLinks(t, dir, third)
	if got, err := ensureAll(l); err != nil || got != Updated {
		t.Fatalf("%v (%v)", got, err)
	}
	at := hookPrograms(t, dir)
	if len(at) != allHooks || at[h.pin(h.first-2)] != id(t, third.Guard) {
		t.Errorf("%v", at)
	}
}

// Agents before this one judged LOCAL_IN before the filter table, too, where IPVS had not translated yet.
func TestALocalInLinkBeforeTheFilterTableIsSucceeded(t *testing.T) {
	_, dir := room(t)
	earlier := newLinks(t, dir, programs(t)) // nor had they one before conntrack
	for _, h := range earlier.wanted() {
		h.first = firstPriority
		if name, err := earlier.attachHook(h); err != nil || !strings.HasSuffix(name, "-1") {
			t.Fatalf("%s (%v)", name, err)
		}
	}
	earlier.Close()
	l := newLinks(t, dir, programs(t))
	for _, want := range []Change{Attached, Unchanged} {
		if got, err := ensureAll(l); err != nil || got != want {
			t.Errorf("ensureAll: %v (%v), want %v", got, err, want)
		}
	}
	at := hookPrograms(t, dir)
	if len(at) != allHooks || at["judge-local_in-ip4-101"] == 0 || at["judge-local_in-ip6-101"] == 0 || at["guard-pre_routing-ip6-500"] == 0 {
		t.Errorf("%v", at)
	}
}

func TestAnotherBPFProgramAtOurPriorityIsNoObstacle(t *testing.T) {
	_, dir := room(t)
	other, err := link.AttachNetfilter(link.NetfilterOptions{
		Program: program(t, ebpf.Netfilter, 1), ProtocolFamily: link.NetfilterProtoIPv4,
		Hook: link.NetfilterInetForward, Priority: firstPriority,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l := newLinks(t, dir, programs(t))
	for _, want := range []Change{Attached, Unchanged} {
		if got, err := ensureAll(l); err != nil || got != want {
			t.Errorf("ensureAll: %v (%v), want %v", got, err, want)
		}
	}
	if at := hookPrograms(t, dir); at["judge-forward-ip4-2"] == 0 {
		t.Errorf("%v", at)
	}
}

func BenchmarkEnsureUnchanged(b *testing.B) {
	testutil.Privileged(b)
	ns := testutil.NetNS(b)
	ns.Enter(b)
	p := programs(b)
	l, err := NewLinks(filepath.Join(testutil.BPFFS(b), "links"), nil, p)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ifindex := veth(b, "calitest1")
	b.Run("interface", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Ensure(ifindex); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hooks", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.EnsureHooks(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pod side", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := FindPodSide(ifindex); err != nil {
				b.Fatal(err)
			}
		}
	})
}
