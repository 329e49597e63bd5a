package bpfmaps

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// dump is what bpftool prints of a pinned map: what people see.
func dump(t *testing.T, path string) []map[string]json.RawMessage {
	t.Helper()
	out, err := exec.Command("bpftool", "-j", "map", "dump", "pinned", path).CombinedOutput()
	if err != nil {
		t.Fatalf("bpftool map dump pinned %s: %v\n%s", path, err, out)
	}
	var entries []struct {
		Formatted map[string]json.RawMessage `json:"formatted"`
	}
	if err := json.Unmarshal(out, &entries); err != nil {
		t.Fatalf("bpftool map dump pinned %s: %v\n%s", path, err, out)
	}
	var list []map[string]json.RawMessage
	for _, e := range entries {
		var value map[string]json.RawMessage
		if err := json.Unmarshal(e.Formatted["value"], &value); err != nil {
			t.Fatalf("%s: the value has no named fields: %s", path, e.Formatted["value"])
		}
		list = append(list, value)
	}
	return list
}

func TestBpftoolPrintsNamedFields(t *testing.T) {
	testutil.RequireCommand(t, "bpftool")
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	slot := mustPublish(t, s, policyContent(1, 10))[0]
	m.Addresses.IP4Host.Set(bpf.IP4{Addr: [4]uint8{10, 0, 0, 1}}, bpf.AddrInfo{Class: 3})
	m.ClassSets.Set(bpf.ClassChunk{Class: 3}, bpf.SetBits{Bits: [8]uint64{2}})
	m.Names.Sets.Set(1, NewName("s:web"))
	flow, entry := bpf.Ct4Key{A: [4]uint8{10, 0, 0, 1}, Pa: 80, Proto: 6}, bpf.CtEntry{L4: 80}
	for _, err := range []error{m.Addresses.IP4Host.Sync(), m.ClassSets.Sync(), m.Names.Sets.Sync(), m.Map(bpf.MargayMapCt4).Put(&flow, &entry)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, fields := range map[string][]string{
		filepath.Join(slotDir(m.dir, slot), bpf.MargayMapRules):    {"id", "action", "proto", "jump", "in", "dport"},
		filepath.Join(slotDir(m.dir, slot), bpf.MargayMapOutcomes): {"id", "rule", "action", "pass"},
		filepath.Join(slotDir(m.dir, slot), bpf.MargayMapCells):    {"cell"},
		filepath.Join(m.Dir(), bpf.MargayMapSlots):                 {"rules", "rows", "columns", "generation"},
		filepath.Join(m.Dir(), bpf.MargayMapEndpoints):             {"ifindex", "flags", "ingress", "egress", "mac", "addr4"},
		filepath.Join(m.Dir(), bpf.MargayMapIp4Host):               {"ifindex", "lock", "class", "flags", "check"},
		filepath.Join(m.Dir(), bpf.MargayMapClassSets):             {"bits"},
		filepath.Join(m.Dir(), bpf.MargayMapSetNames):              {"text"},
		filepath.Join(m.Dir(), bpf.MargayMapCt4):                   {"seen", "state", "flags", "egress", "ingress", "backend"},
	} {
		entries := dump(t, path)
		if len(entries) == 0 {
			t.Errorf("%s: no entries", path)
			continue
		}
		for _, f := range fields {
			if _, ok := entries[0][f]; !ok {
				t.Errorf("%s: no field %q in %v", path, f, entries[0])
			}
		}
	}
}

// TestPinsFollowTheArrays: what is pinned for a slot is what programs read, also after the arrays were replaced, and
// after an agent that had no time to pin.
func TestPinsFollowTheArrays(t *testing.T) {
	m, o := openMaps(t)
	s := mustSlots(t, m)
	small := mustPublish(t, s, policyContent(1, 10))[0]
	pin := filepath.Join(slotDir(m.dir, small), bpf.MargayMapRules)
	samePin(t, m, small)
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = mustOpen(t, o)
	s = mustSlots(t, m, small)
	samePin(t, m, small)
	if err := s.Release(small); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(0); err != nil {
		t.Fatal(err)
	}
	for s.pool.grace.len() > 0 {
		freed, err := s.pool.grace.awaitPassed()
		if err != nil {
			t.Fatal(err)
		}
		s.pool.free(freed)
	}
	if err := s.Trim(0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(slotDir(m.dir, small)); !os.IsNotExist(err) {
		t.Errorf("the pins of a slot without arrays are still there: %v", err)
	}
}

func samePin(t *testing.T, m *Maps, slot uint32) {
	t.Helper()
	rules, err := m.ReadRules(slot)
	if err != nil {
		t.Fatal(err)
	}
	entries := dump(t, filepath.Join(slotDir(m.dir, slot), bpf.MargayMapRules))
	if len(entries) < len(rules) || len(rules) == 0 {
		t.Errorf("slot %d has %d rules, its pin %d", slot, len(rules), len(entries))
	}
}
