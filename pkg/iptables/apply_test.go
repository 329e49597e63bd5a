package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

func TestTheTransactionIsTheDifference(t *testing.T) {
	fake := iptables.NewFake()
	k := kernel{tools: fake.Tools(iptables.Legacy), family: iptables.V4, fake: fake}
	table := example(t, k)
	set(t, table, ruleset.Chain{Name: "mgyA-FORWARD", Rules: []string{"-j mgyA-new"}}, ruleset.Chain{Name: "mgyA-new", Rules: []string{"-j DROP"}})
	table.Remove("mgyA-judge")
	jumps(t, table, "FORWARD", "-i cali+ -j mgyA-FORWARD", "-o cali+ -j mgyA-FORWARD")
	apply(t, table)
	log := fake.Transactions()
	got := strings.Split(log[len(log)-1], "\n")
	got = slices.DeleteFunc(got, func(line string) bool { return strings.Contains(line, "mgyA-seal") })
	want := []string{"*mangle", ":mgyA-FORWARD - [0:0]", ":mgyA-new - [0:0]", ":mgyA-judge - [0:0]",
		"-D FORWARD -j mgyA-FORWARD", "-I FORWARD 1 -i cali+ -j mgyA-FORWARD", "-I FORWARD 2 -o cali+ -j mgyA-FORWARD",
		"-A mgyA-FORWARD -j mgyA-new", "-A mgyA-new -j DROP", "-X mgyA-judge", "COMMIT", ""}
	if !slices.Equal(got, want) {
		t.Errorf("the transaction is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestARefusedRuleIsNamed(t *testing.T) {
	for _, tc := range []struct{ rule, text string }{
		{"-m nonsense --yes -j DROP", "-A mgyA-x -m nonsense --yes -j DROP"},
		{"-p tcp -m tcp --dport 99999 -j DROP", "-A mgyA-x -p tcp -m tcp --dport 99999 -j DROP"},
		{"-j REJECT", "COMMIT"}, // in mangle: the kernel's answer is for the whole table in the legacy backend
	} {
		realKernels(t, func(t *testing.T, k kernel) {
			table := example(t, k)
			before := own(t, table)
			set(t, table, ruleset.Chain{Name: "mgyA-x", Rules: []string{"-j RETURN", tc.rule}})
			_, err := table.Apply(t.Context())
			want := tc.text
			if k.tools.Backend == iptables.NFT && want == "COMMIT" {
				want = "-A mgyA-x -j REJECT"
			}
			var refused *iptables.RefusedError
			named := errors.As(err, &refused) && (refused.Text == want ||
				refused.Text == "COMMIT" && strings.HasSuffix(refused.Message, "rule in chain mgyA-x")) // as of iptables-nft 1.8.7
			if !named {
				t.Errorf("%s: %v, want one that names %q", tc.rule, err, want)
			}
			if after := own(t, table); !slices.Equal(after, before) {
				t.Errorf("%s: something was written: %q", tc.rule, after)
			}
			table.Remove("mgyA-x")
			if commit := apply(t, table); commit.Bytes > 0 {
				t.Errorf("without the rule there is nothing to write: %+v", commit)
			}
		})
	}
}

func TestImpossibleGraphsAreRefusedBeforeTheKernelSeesThem(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		set(t, table, ruleset.Chain{Name: "mgyA-x", Rules: []string{"-m mark --mark 0x1 -g mgyA-y"}})
		var unknown *ruleset.UnknownChainError
		if _, err := table.Apply(t.Context()); !errors.As(err, &unknown) {
			t.Errorf("a chain that does not exist: %v", err)
		}
		set(t, table, ruleset.Chain{Name: "mgyA-y", Rules: []string{"-m mark --mark 0x2 -j mgyA-x"}})
		var loop *ruleset.LoopError
		if _, err := table.Apply(t.Context()); !errors.As(err, &loop) {
			t.Errorf("a loop: %v", err)
		}
		set(t, table, ruleset.Chain{Name: "mgyA-y"})
		apply(t, table)
	})
}

// TestTheKernelsLimitOfDepthIsOurs: what Depth allows the kernel takes, and one more it does not.
func TestTheKernelsLimitOfDepthIsOurs(t *testing.T) {
	deep := func(levels int) (lines []string) {
		for i := range levels {
			lines = append(lines, fmt.Sprintf(":mgyA-%d - [0:0]", i+1))
		}
		for i := range levels - 1 {
			lines = append(lines, fmt.Sprintf("-A mgyA-%d -g mgyA-%d", i+1, i+2))
		}
		return append(lines, "-A FORWARD -j mgyA-1")
	}
	realKernels(t, func(t *testing.T, k kernel) {
		limit := k.tools.Backend.Depth()
		if limit == 0 {
			k.load(t, "mangle", deep(500)...)
			return
		}
		k.load(t, "mangle", deep(limit)...)
		table := k.table("raw")
		for i := range limit {
			set(t, table, ruleset.Chain{Name: fmt.Sprintf("mgyA-%d", i+1), Rules: []string{fmt.Sprintf("-g mgyA-%d", i+2)}})
		}
		set(t, table, ruleset.Chain{Name: fmt.Sprintf("mgyA-%d", limit+1)})
		jumps(t, table, "PREROUTING", "-j mgyA-1")
		var depth *ruleset.DepthError
		if _, err := table.Apply(t.Context()); !errors.As(err, &depth) {
			t.Errorf("%d levels: %v, want a DepthError", limit+1, err)
		}
		if err := tryLoad(k, "mangle", append(deep(limit+1), "-F FORWARD")...); err != nil {
			t.Errorf("without a jump from FORWARD: %v", err)
		}
		if tryLoad(k, "mangle", "-A FORWARD -j mgyA-1") == nil {
			t.Errorf("the kernel takes %d levels", limit+1)
		}
	})
}

// Somebody holds the lock of iptables-legacy: our caller is not held up longer than its context lets it.
func TestAHeldLockEndsWithTheContext(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		if k.fake == nil && k.tools.Backend == iptables.NFT {
			return // it has no lock
		}
		table := example(t, k)
		release := hold(t, k)
		set(t, table, ruleset.Chain{Name: "mgyA-ok", Rules: []string{"-j DROP"}})
		longEnough(t, "of the context", func(limit time.Duration) bool {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			commit, err := table.Apply(ctx)
			var locked *iptables.LockedError
			if !errors.As(err, &locked) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v after %v, want a LockedError after %v", err, time.Since(start), limit)
			}
			if holder := fmt.Sprintf("process %d (", os.Getpid()); k.fake == nil && !strings.HasPrefix(locked.Holder, holder) {
				t.Errorf("the holder is %q, want %q", locked.Holder, holder)
			}
			return commit.Waited > limit/2 && locked.Waited > limit/2
		})
		longEnough(t, "for the lock", func(limit time.Duration) bool {
			set(t, table, ruleset.Chain{Name: fmt.Sprintf("mgyA-%d", limit.Milliseconds()), Rules: []string{"-j DROP"}})
			time.AfterFunc(limit, release)
			commit := apply(t, table)
			if commit.Chains == 0 {
				t.Errorf("after the lock was free: %+v", commit)
			}
			release = hold(t, k)
			return commit.Waited > limit/2
		})
	})
}

// longEnough repeats a wait, each time for longer, until most of its limit was spent waiting: how soon a wait begins depends on what else
// the machine does.
func longEnough(t *testing.T, what string, wait func(limit time.Duration) bool) {
	t.Helper()
	for limit := 50 * time.Millisecond; limit < 10*time.Second; limit *= 2 {
		if wait(limit) {
			return
		}
	}
	t.Errorf("the wait %s is not counted", what)
}

// hold holds the lock of iptables until the function that it returns is called, or the test ends.
func hold(t *testing.T, k kernel) (release func()) {
	t.Helper()
	if k.fake != nil {
		k.fake.Lock(true)
		return func() { k.fake.Lock(false) }
	}
	f, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// After a command that ended in an unknown way the table is read before anything is written.
func TestAfterAnErrorTheKernelIsAsked(t *testing.T) {
	fake := iptables.NewFake()
	k := kernel{tools: fake.Tools(iptables.Legacy), family: iptables.V4, fake: fake}
	table := example(t, k)
	fake.Fail(errors.New("killed"))
	set(t, table, ruleset.Chain{Name: "mgyA-ok", Rules: []string{"-j DROP"}})
	if _, err := table.Apply(t.Context()); err == nil {
		t.Fatal("the failure is not reported")
	}
	k.load(t, "mangle", "-F mgyA-judge") // nobody has looked since
	if commit := apply(t, table); commit.Chains != 3 {
		t.Errorf("after the failure: %+v, want three chains: the new one, the seal and the one emptied meanwhile", commit)
	}
}

// Somebody has removed what a transaction refers to: it is made again from what is there.
func TestATransactionThatOthersBrokeIsRepeated(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		k.load(t, "mangle", "-D FORWARD -j mgyA-FORWARD")
		jumps(t, table, "FORWARD", "-i cali+ -j mgyA-FORWARD")
		apply(t, table)
		if got, want := rules(t, table, "FORWARD"), canonical("-i cali+ -j mgyA-FORWARD"); !slices.Equal(got, want) {
			t.Errorf("FORWARD has %q, want %q", got, want)
		}
	})
}

func TestForeignNamesAreRefused(t *testing.T) {
	table := iptables.NewFake().Tools(iptables.Legacy).Table(iptables.V4, "mangle", prefix)
	for _, c := range []ruleset.Chain{{Name: "KUBE-FORWARD"}, {Name: "mgyA-seal"}, {Name: "mgyA-twenty-nine-bytes-of-name"}, {Name: "mgyA x"},
		{Name: "mgyA-x", Rules: []string{"-j DROP\n-A FORWARD -j ACCEPT"}}, {Name: "mgyA-x", Rules: []string{"COMMIT"}}} {
		if err := table.Set(c); err == nil {
			t.Errorf("%q was taken", c)
		}
	}
	for _, rule := range []string{"-j DROP", "-j KUBE-X", "-j mgyA-x\nCOMMIT"} {
		if err := table.SetJumps("FORWARD", rule); err == nil {
			t.Errorf("the jump %q was taken", rule)
		}
	}
}

func TestCountersAreRead(t *testing.T) {
	realKernels(t, func(t *testing.T, k kernel) {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		table := k.table("mangle")
		set(t, table, ruleset.Chain{Name: "mgyA-out", Rules: []string{"-p tcp", "-p udp -m udp --dport 9"}})
		jumps(t, table, "OUTPUT", "-j mgyA-out")
		apply(t, table)
		host := map[iptables.Family]string{iptables.V4: "127.0.0.1:9", iptables.V6: "[::1]:9"}[k.family]
		for range 3 {
			conn, err := net.Dial("udp", host) // each its own: an answer from the port ends the first
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			conn.Close()
		}
		saved, err := table.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := saved.Chain("mgyA-out").Rules
		if got[0].Counter != (ruleset.Counter{}) || got[1].Counter.Packets != 3 || got[1].Counter.Bytes < 3*29 {
			t.Errorf("counted %+v, want 3 packets by the second rule", got)
		}
	})
}

func TestGraceEnds(t *testing.T) {
	start := time.Now()
	if err := iptables.Grace(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("grace took %v", time.Since(start))
}
