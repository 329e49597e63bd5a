package marks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// blob is a table of iptables' legacy backend as the kernel hands it out: entries one after the other, each with matches and
// a target. Chains begin at fixed offsets, or after an entry whose target, ERROR, has the chain's name.
type blob struct {
	entries []byte
	hooks   map[int]string // offsets of the built-in chains
	layout  entryLayout
}

// entryLayout is where things are in an entry (struct ipt_entry, ip6t_entry).
type entryLayout struct{ targetAt, nextAt, elements int }

var (
	layout4 = entryLayout{88, 90, 112}
	layout6 = entryLayout{140, 142, 168}
)

// header is the size of struct xt_entry_match and xt_entry_target: two bytes of size, 29 of name, one of revision.
const header = 32

var errBlob = errors.New("the kernel's table is not as expected")

// users are the rules of the table that use marks; where begins their names.
func (b blob) users(where string) ([]User, error) {
	var users []User
	chain, position := "", 0
	for at := 0; at < len(b.entries); {
		entry := b.entries[at:]
		if len(entry) < b.layout.elements {
			return users, errBlob
		}
		target := int(binary.NativeEndian.Uint16(entry[b.layout.targetAt:]))
		next := int(binary.NativeEndian.Uint16(entry[b.layout.nextAt:]))
		if target < b.layout.elements || next < target+header || next > len(entry) {
			return users, errBlob
		}
		if name, ok := b.hooks[at]; ok {
			chain, position = name, 0
		}
		t := extensionAt(entry[target:next])
		if t.name == "ERROR" {
			chain, position = text(t.info), 0
			at += next
			continue
		}
		position++
		use := Use{Changes: targetChanges(t)}
		for m := b.layout.elements; m < target; {
			size := int(binary.NativeEndian.Uint16(entry[m:]))
			if size < header || m+size > target {
				return users, errBlob
			}
			use.Reads |= matchReads(extensionAt(entry[m : m+size]))
			m += size
		}
		if use != (Use{}) {
			users = append(users, User{fmt.Sprintf("%s %s rule %d", where, chain, position), use})
		}
		at += next
	}
	return users, nil
}

func extensionAt(b []byte) extension {
	return extension{text(b[2:31]), uint32(b[31]), b[header:]}
}

// text is a string that ends with a zero.
func text(b []byte) string {
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}
