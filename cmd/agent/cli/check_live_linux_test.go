package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestIPVSByItselfIsNoProblem has an interface that is named as kube-proxy's; the kernel need not have ip_vs.
func TestIPVSByItselfIsNoProblem(t *testing.T) {
	n := newNode(t)
	err := n.machine.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "kube-ipvs0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "kube-peer"})
	})
	if err != nil {
		t.Fatal(err)
	}
	n.want(0, []string{"translated by IPVS (the interface kube-ipvs0), judged on the backend"}, "check")
}

// TestARuleThatSetsOurMarkBitsIsSaid: such a bit can take packets past policy.
func TestARuleThatSetsOurMarkBitsIsSaid(t *testing.T) {
	for backend, where := range map[string]string{
		"iptables": "nftables ip mangle PREROUTING rule", "iptables-legacy": "iptables-legacy mangle PREROUTING rule 1",
	} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t)
			err := n.machine.Do(func() error {
				return exec.Command(backend, "-t", "mangle", "-A", "PREROUTING", "-i", "eth0", "-j", "MARK", "--or-mark", "0x1000").Run()
			})
			if err != nil {
				t.Fatal(err)
			}
			words := []string{"other programs use packet mark bits of Margay", where, "changes bits 0x00001000", "--mark-mask"}
			n.want(1, append(words, "PROBLEM"), "check")
			n.want(0, []string{"no rule of the node uses them"}, "check", "--mark-mask", "0x00700000")
			n.launch()
			n.ready(func() bool {
				out, code := n.cli("show", "problems")
				return code == 0 && strings.Contains(out, where)
			}, "the agent to say that somebody uses its bits")
			n.want(0, words, "show", "problems")
			n.unready("node")
		})
	}
}

// TestCheckReadsTheFileOfSettings: without an agent its verdict is about the agent that margay run would start.
func TestCheckReadsTheFileOfSettings(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(t.TempDir(), "margay.yaml")
	t.Setenv("MARGAY_CONFIG_FILE", file)
	n.write(file, "dataplane: iptables\niptables-mark-mask: 0xfff00000\n")
	n.want(0, []string{"dataplane  iptables: it is configured", "mark bits 0xfff00000", "all is well"}, "check")
	n.want(0, []string{"dataplane  bpf: it is configured", "mark bits 0x00001c00"}, "check", "--dataplane", "bpf")
	n.write(file, "socket: "+n.socket+"-of-file\n")
	n.want(0, []string{"no agent answers on " + n.socket + ":"}, "check") // the flag wins

	n.write(file, "dataplane: ebpf\nlog-level: loud\n")
	wrong := []string{file + " line 1", `"ebpf"`, file + " line 2", `"loud"`}
	n.want(1, append(wrong, "configuration", "PROBLEM"), "check")
	n.want(2, wrong, "run")
	n.want(2, []string{`--mark-mask "0x3": three bits are needed`}, "check", "--mark-mask", "0x3")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.want(1, []string{"configuration", "PROBLEM", file + ": no such file or directory"}, "check")

	for settings, why := range map[string]string{
		"map-size: nosuch=5\n":                         "--map-size nosuch=5: no map has this name; want one of ",
		"map-size: nosuch=5\ndataplane: iptables\n":    "--map-size nosuch=5: no map has this name; want one of ",
		"datastore: etcd\n":                            "--datastore etcd needs --etcd-endpoints",
		"datastore: kubernetes\nkubeconfig: /nosuch\n": "/nosuch",
	} {
		n.write(file, settings)
		n.want(1, []string{"configuration", "PROBLEM", why}, "check")
		n.want(2, []string{why}, "run")
	}

	n.write(file, "log-level: warn\n")
	n.start()
	n.write(file, "log-level: loud\n")
	out, _ := n.cli("check")
	if strings.Contains(out, "\nconfiguration ") {
		t.Errorf("check beside an agent judges the file by itself:\n%s", out)
	}
}

// TestCheckAsksTheAgentOfTheFile: an agent answers where its file says, and so it is found.
func TestCheckAsksTheAgentOfTheFile(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(t.TempDir(), "margay.yaml")
	n.write(file, "socket: "+n.socket+"\nbpffs: "+n.bpffs+"\ninstance: live\n")
	n.start()
	var out bytes.Buffer
	code := 0
	err := n.machine.Do(func() error {
		code = execute(t.Context(), []string{"check", "--config-file", file}, &out, &out)
		return nil
	})
	if err != nil || code != 0 || !strings.Contains(out.String(), "ready: policy of 2 endpoints is enforced") {
		t.Errorf("exit status %d, %v:\n%s", code, err, &out)
	}
}

// TestAPrefixThatNamesTheLoopbackInterfaceIsRefused: it would be closed, and with it probes of kubelets and servers that listen on it.
func TestAPrefixThatNamesTheLoopbackInterfaceIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "margay.yaml")
	if err := os.WriteFile(file, []byte("interface-prefix: lo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // no agent is to stay, should it start after all
	for _, args := range [][]string{
		{"run", "--config-file", file, "--dataplane", "record", "--socket", filepath.Join(t.TempDir(), "s")},
		{"check", "--config-file", file}, {"config", "--local", "--interface-prefix", "lo"},
	} {
		var out bytes.Buffer
		ctx := t.Context()
		if args[0] == "run" {
			ctx = ended
		}
		code := execute(ctx, args, &out, &out)
		if code == 0 || !strings.Contains(out.String(), "also names lo, the node's loopback interface: it would be closed") {
			t.Errorf("%q: exit status %d:\n%s", args, code, &out)
		}
	}
}
