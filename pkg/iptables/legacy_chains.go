package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// legacyNames are the files that list the legacy tables of this network namespace.
var legacyNames = map[Family]string{V4: "ip_tables_names", V6: "ip6_tables_names"}

// chainHeader begins a chain of a legacy table (struct xt_error_target): a target ERROR of revision 0, whose data are the chain's name.
var chainHeader = append([]byte("ERROR"), make([]byte, 29-len("ERROR")+1)...)

// LegacyChains reports whether a table of the legacy backend in this network namespace has a chain whose name begins with the prefix. It
// reads the kernel, without commands and without the lock, and makes no table.
func LegacyChains(prefix string) (bool, error) {
	begin := append(bytes.Clone(chainHeader), prefix...)
	for _, family := range Families {
		names, err := os.ReadFile("/proc/thread-self/net/" + legacyNames[family])
		if errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		if err != nil {
			return false, fmt.Errorf("list legacy tables of iptables: %w", err)
		}
		layout := legacyLayouts[family]
		for _, table := range strings.Fields(string(names)) {
			found := false
			err := layout.ask(func(socket int) error {
				entries, err := layout.entries(socket, table)
				found = bytes.Contains(entries, begin)
				return err
			})
			if err != nil {
				return false, fmt.Errorf("read the legacy %v table %s: %w", family, table, err)
			}
			if found {
				return true, nil
			}
		}
	}
	return false, nil
}
