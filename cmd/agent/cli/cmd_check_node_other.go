//go:build !linux

package cli

import (
	"context"
	"errors"
)

// node has no node to check.
func (o *checkOptions) node(context.Context, *checkReport) error {
	return errors.New("check this node: Margay enforces on Linux only; margay check --dir checks manifests on any system")
}
