package bpfmaps

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

var updateLayout = flag.Bool("update-layout", false, "rewrite testdata/layout.txt")

// An agent takes over what an earlier one has pinned, so what is in a map may only change together with Layout. This
// compares with what the layout was: if it differs from the last release's, raise Layout; then run this test with
// -update-layout.
func TestLayoutChangesOnlyWithItsVersion(t *testing.T) {
	const golden = "testdata/layout.txt"
	spec, err := sized(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "layout %d\n", Layout)
	for _, name := range (&Maps{spec: spec}).names() {
		ms := spec.Maps[name]
		fmt.Fprintf(&b, "\n%s: %v, flags %#x", name, ms.Type, ms.Flags)
		if fixedSize(ms.Type) {
			fmt.Fprintf(&b, ", %d entries", ms.MaxEntries)
		}
		b.WriteString("\n")
		if ms.InnerMap != nil {
			ms = ms.InnerMap
			fmt.Fprintf(&b, "  inner: %v, flags %#x\n", ms.Type, ms.Flags)
		}
		describe(&b, "  key", ms.Key)
		describe(&b, "  value", ms.Value)
	}
	if *updateLayout {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("what is pinned has changed (see the comment above this test):\n%s", diff)
	}
}

// describe writes a type's fields, with their offsets in bytes.
func describe(b *strings.Builder, what string, of btf.Type) {
	switch of := of.(type) {
	case nil:
	case *btf.Struct:
		fmt.Fprintf(b, "%s: struct %s, %d bytes\n", what, of.Name, of.Size)
		for _, m := range of.Members {
			fmt.Fprintf(b, "    %d %s %s\n", m.Offset.Bytes(), m.Name, typeName(m.Type))
		}
	default:
		fmt.Fprintf(b, "%s: %s\n", what, typeName(of))
	}
}

func typeName(of btf.Type) string {
	switch of := btf.UnderlyingType(of).(type) {
	case *btf.Array:
		return fmt.Sprintf("%s[%d]", typeName(of.Type), of.Nelems)
	case *btf.Int:
		return fmt.Sprintf("%d bits", of.Size*8)
	case *btf.Struct:
		fields := make([]string, len(of.Members))
		for i, m := range of.Members {
			fields[i] = m.Name + " " + typeName(m.Type)
		}
		return "{" + strings.Join(fields, ", ") + "}"
	default:
		return of.TypeName()
	}
}
