//go:build !linux

package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// node has no node to check.
func (o *checkOptions) node(*cobra.Command, *checkReport) error {
	return errors.New("check this node: Margay enforces on Linux only; margay check --dir checks manifests on any system")
}
