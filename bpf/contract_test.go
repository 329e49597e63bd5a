package bpf

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

func spec(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	s, err := LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStructsHaveNoHoles: what crosses the border has only explicit padding, so Go can copy it as it is.
func TestStructsHaveNoHoles(t *testing.T) {
	types := spec(t).Types
	for _, name := range []string{"ip4", "ip6", "net4", "net6", "addr_info", "host_info", "class_chunk", "set_bits", "name", "slot", "staged", "rule",
		"l4_page", "cell_block", "outcome", "endpoint", "source_key", "ct4_key", "ct6_key", "ct_entry", "fragment", "frag_set", "share", "half_key", "neighbour", "grace",
		"counter", "drop_key", "event", "event_budget", "sweep", "config"} {
		var s *btf.Struct
		if err := types.TypeByName(name, &s); err != nil {
			t.Errorf("struct %s: %v", name, err)
			continue
		}
		end := uint32(0)
		for _, m := range s.Members {
			if m.Offset.Bytes() != end {
				t.Errorf("struct %s has a hole of %d bytes before %s", name, m.Offset.Bytes()-end, m.Name)
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			end = m.Offset.Bytes() + uint32(size)
		}
		if end != s.Size {
			t.Errorf("struct %s ends at %d but has size %d: %d bytes of hidden padding", name, end, s.Size, s.Size-end)
		}
	}
}

// TestMapsAreReadable: names fit the kernel's 15 characters and every key and value has BTF.
func TestMapsAreReadable(t *testing.T) {
	for name, m := range spec(t).Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if len(name) > 15 {
			t.Errorf("map %s: name longer than 15 characters is cut by the kernel", name)
		}
		if m.Type == ebpf.RingBuf {
			continue
		}
		if m.Type == ebpf.ArrayOfMaps {
			m = m.InnerMap
		}
		if m == nil || m.Key == nil || m.Value == nil {
			t.Errorf("map %s: no BTF for its key or value", name)
		}
	}
}

// TestEveryReasonIsExplained joins the C enum with the texts, the labels and the documentation.
func TestEveryReasonIsExplained(t *testing.T) {
	var enum *btf.Enum
	if err := spec(t).Types.TypeByName("drop_reason", &enum); err != nil {
		t.Fatal(err)
	}
	frozen := []string{"DROP_NONE", "DROP_POLICY", "DROP_NO_ENDPOINT", "DROP_SPOOFED", "DROP_NOT_IP", "DROP_TRUNCATED",
		"DROP_BAD_HEADER", "DROP_EXT_HEADERS", "DROP_FRAG_NO_FIRST", "DROP_FRAG_DENIED", "DROP_REVOKED", "DROP_MIDFLOW",
		"DROP_NO_TABLE", "DROP_UNSEEN", "DROP_HOST_ACTION", "DROP_CT_INVALID", "DROP_ENCAP", "DROP_NEIGHBOUR",
		"DROP_NEIGHBOUR_RATE", "DROP_SOURCE_ROUTE", "DROP_FRAG_LIMIT"}
	docs, err := os.ReadFile("../docs/datapath.md")
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`^[a-z0-9_]+$`)
	for _, v := range enum.Values {
		if v.Name == "DROP_REASONS" {
			if int(v.Value) != Reasons() || int(v.Value) != len(frozen) {
				t.Errorf("%d reasons in C, %d in Go, %d frozen", v.Value, Reasons(), len(frozen))
			}
			continue
		}
		if int(v.Value) >= len(frozen) || frozen[v.Value] != v.Name {
			t.Errorf("reason %s has number %d: numbers are frozen, append only", v.Name, v.Value)
			continue
		}
		r := DropReason(v.Value)
		if !label.MatchString(Label(r)) || Text(r) == "" || strings.HasPrefix(Text(r), "reason ") {
			t.Errorf("reason %s: label %q, text %q", v.Name, Label(r), Text(r))
		}
		if v.Value != 0 && !strings.Contains(string(docs), "`"+Label(r)+"`") {
			t.Errorf("reason %s: docs/datapath.md does not mention `%s`", v.Name, Label(r))
		}
	}
}

// TestProgramsExist: what the agent attaches is there, of the right kind.
func TestProgramsExist(t *testing.T) {
	progs := spec(t).Programs
	for name, kind := range map[string]ebpf.ProgramType{
		MargayProgFromPod: ebpf.SchedCLS, MargayProgToPod: ebpf.SchedCLS, MargayProgJudge: ebpf.Netfilter,
		MargayProgGuard:  ebpf.Netfilter,
		MargayProgSweep4: ebpf.Syscall, MargayProgSweep6: ebpf.Syscall, MargayProgAsk: ebpf.SchedCLS,
		MargayProgRestamp4: ebpf.Syscall, MargayProgRestamp6: ebpf.Syscall,
	} {
		p := progs[name]
		if p == nil || p.Type != kind {
			t.Errorf("program %s: missing or not %v", name, kind)
			continue
		}
		if !strings.Contains(p.License, "GPL") {
			t.Errorf("program %s: license %q does not give it the helpers it needs", name, p.License)
		}
	}
}
