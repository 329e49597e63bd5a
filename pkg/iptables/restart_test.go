package iptables_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// An agent that died between two transactions has left half a world. The next one finishes its own and deletes all else.
func TestHalfAWorldIsCleanedUp(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		example(t, k)
		k.load(t, "mangle", ":mgyB-old - [0:0]", ":mgyB-FORWARD - [0:0]", "-A mgyB-FORWARD -j mgyB-old", "-A mgyB-old -j ACCEPT")
		table := k.table("mangle")
		table.Keep("mgyA")
		set(t, table, ruleset.Chain{Name: "mgyB-FORWARD", Rules: []string{"-j DROP"}})
		if commit := apply(t, table); commit.Chains != 2 || commit.Removed != 1 {
			t.Errorf("the second agent's first commit: %+v, want its chain, its seal, and the old chain removed", commit)
		}
		if err := seal(t, table); err != nil {
			t.Errorf("the world in force: %v", err)
		}
		jumps(t, table, "FORWARD", "-j mgyB-FORWARD")
		apply(t, table)
		table.Keep()
		apply(t, table)
		saved, err := table.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := saved.VerifySeal("mgyB"); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(own(t, table), "\n"), "FORWARD -j mgyB-FORWARD\nmgyB-FORWARD -j DROP\nmgyB-seal "; !strings.HasPrefix(got, want) {
			t.Errorf("in the end:\n%s\nwant\n%s…", got, want)
		}
	})
}

// Two agents on one machine leave each other's chains alone, even if the prefix of one begins with that of the other, and do not
// quarrel about who is first.
func TestTwoAgentsStayApart(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		other := k.tools.Table(k.family, "mangle", "mgyx")
		set(t, other, ruleset.Chain{Name: "mgyxA-FORWARD", Rules: []string{"-p udp -j DROP"}})
		jumps(t, other, "FORWARD", "-j mgyxA-FORWARD")
		if commit := apply(t, other); commit.Chains != 2 || commit.Removed > 0 {
			t.Errorf("the second agent: %+v", commit)
		}
		if findings, err := other.Check(t.Context()); len(findings) > 0 || err != nil {
			t.Errorf("the second agent finds %v, %v", findings, err)
		}
		if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
			t.Errorf("the first agent finds %v, %v", findings, err)
		}
		k.load(t, "mangle", "-I FORWARD 1 -p udp -j ACCEPT")
		for _, agent := range []*iptables.Table{table, other, table, other} {
			if _, err := agent.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			apply(t, agent)
		}
		want := canonical("-j mgyxA-FORWARD", "-j mgyA-FORWARD", "-p udp -j ACCEPT")
		if got := rules(t, table, "FORWARD"); !slices.Equal(got, want) {
			t.Errorf("after both repaired, FORWARD has %q, want %q", got, want)
		}
		if commit := apply(t, table); commit.Bytes > 0 {
			t.Errorf("the agents do not come to an end: %+v", commit)
		}
		jumps(t, table, "FORWARD")
		for _, name := range []string{"mgyA-FORWARD", "mgyA-judge", "mgyA-ok"} {
			table.Remove(name)
		}
		apply(t, table)
		if got := rules(t, other, "mgyxA-FORWARD"); len(got) != 1 {
			t.Errorf("after the first agent has gone, the second one's chain has %q", got)
		}
	})
}

// Chains that an earlier agent has left and this one neither desires nor keeps go, with the jumps to them.
func TestWhatIsNeitherDesiredNorKeptGoes(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		example(t, k)
		k.load(t, "mangle", ":mgyB-x - [0:0]", "-A FORWARD -j mgyB-x", "-A INPUT -j mgyB-x", "-A INPUT -j mgyA-ok")
		table := k.table("mangle")
		table.Keep("mgyB")
		if commit := apply(t, table); commit.Removed != 4 {
			t.Errorf("removed with the jumps to them: %+v", commit)
		}
		want := []string{"FORWARD -j mgyB-x", "INPUT -j mgyB-x"}
		if got := own(t, table); !slices.Equal(got, want) {
			t.Errorf("left: %q, want %q", got, want)
		}
		if findings, err := table.Check(t.Context()); len(findings) > 0 || err != nil {
			t.Errorf("Check: %v, %v", findings, err)
		}
	})
}

// slowTools are commands that claim to be iptables, and never end.
const slowTools = `#!/bin/sh
case "$*" in
*--version) echo "iptables v1.8.9 (nf_tables)"; exit;;
*-t*) printf '*mangle\n:FORWARD ACCEPT [0:0]\nCOMMIT\n'; exit;;
esac
echo $$ >"$(dirname "$0")/pid.new" && mv "$(dirname "$0")/pid.new" "$(dirname "$0")/pid"
exec sleep 1000
`

const slowDirectory = "SLOW_TOOLS_DIRECTORY"

// TestAgentWithSlowCommands is the agent of TestACommandDiesWithItsAgent.
func TestAgentWithSlowCommands(t *testing.T) {
	directory := os.Getenv(slowDirectory)
	if directory == "" {
		return
	}
	t.Setenv("PATH", directory)
	tools, err := iptables.Find(t.Context(), iptables.NFT)
	if err != nil {
		t.Fatal(err)
	}
	table := tools.Table(iptables.V4, "mangle", prefix)
	set(t, table, ruleset.Chain{Name: "mgyA-x"})
	_, err = table.Apply(t.Context())
	t.Fatalf("Apply has ended: %v", err)
}

// Otherwise a command that waits for the lock could carry out the transaction of a dead agent after those of the next.
func TestACommandDiesWithItsAgent(t *testing.T) {
	testutil.Privileged(t)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "xtables-nft-multi"), []byte(slowTools), 0o700); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0], "-test.run=^TestAgentWithSlowCommands$")
	agent.Env = append(agent.Environ(), slowDirectory+"="+directory)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	testutil.WaitFor(t, time.Minute, "the command to start", func() bool {
		text, err := os.ReadFile(filepath.Join(directory, "pid"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	agent.Wait() // killed
	testutil.WaitFor(t, time.Minute, "the command to die", func() bool {
		err := syscall.Kill(pid, 0)
		return errors.Is(err, syscall.ESRCH) || isZombie(pid)
	})
}

// isZombie reports whether the process has ended and waits for its parent to notice.
func isZombie(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestFindNamesWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := iptables.Find(t.Context(), iptables.Legacy)
	if err == nil || !strings.Contains(err.Error(), "iptables-legacy-restore") {
		t.Errorf("nothing is installed: %v", err)
	}
	if _, err := iptables.Find(t.Context(), "other"); err == nil {
		t.Error("an unknown backend was found")
	}
}

func TestBackendsAreProvenToWork(t *testing.T) {
	kernels(t, func(t *testing.T, k kernel) {
		sets := func() error {
			return exec.Command("sh", "-c", "ipset create mgy-proof4 hash:net,iface skbinfo && ipset create mgy-proof6 hash:net,iface family inet6 skbinfo").Run()
		}
		if err := k.tools.Prove(t.Context(), sets); err != nil {
			t.Error(err)
		}
		if unlike := k.tools.Unlike(); unlike != "" {
			t.Errorf("iptables writes the expression %s, which the list of printed expressions does not have", unlike)
		}
		saved, err := k.table("mangle").Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if saved.Chain("mgy-proof") != nil {
			t.Error("the proof is left in this namespace")
		}
		if k.fake != nil {
			return
		}
		// Without the sets the kernel seems not to have xt_set, and everything else.
		var lacks *iptables.LacksError
		if err := k.tools.Prove(t.Context(), func() error { return nil }); !errors.As(err, &lacks) || !slices.Equal(lacks.Modules, []string{"xt_set"}) {
			t.Errorf("without sets: %v", err)
		} else if !strings.Contains(err.Error(), "modprobe -a xt_set") {
			t.Errorf("the error says nothing of what to do: %v", err)
		}
	})
}

// busyTools are commands that take longer than the context of the test below.
const busyTools = `#!/bin/sh
case "$*" in
*--version) echo "iptables v1.8.9 (nf_tables)"; exit;;
*-t*) printf '*mangle\n:FORWARD ACCEPT [0:0]\nCOMMIT\n'; exit;;
esac
/bin/sleep 0.1
echo >>"${0%/*}/wrote"
`

// A context limits the wait for others, not the work: a large table would never be written if each attempt ended with it.
func TestALargeTransactionTakesLongerThanTheContext(t *testing.T) {
	testutil.Privileged(t) // what the commands list is asked of the kernel, too
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "xtables-nft-multi"), []byte(busyTools), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory)
	tools, err := iptables.Find(t.Context(), iptables.NFT)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	table := tools.Table(iptables.V4, "mangle", prefix)
	set(t, table, ruleset.Chain{Name: "mgyA-x"})
	if commit, err := table.Apply(ctx); err != nil || commit.Chains == 0 {
		t.Errorf("%+v, %v", commit, err)
	}
	if _, err := os.Stat(filepath.Join(directory, "wrote")); err != nil {
		t.Error(err)
	}
}
