package agent

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// plane answers tools for a dataplane without a kernel: any that implements the interface will do.
type plane struct {
	rules  map[model.EndpointID][]inspect.RuleRow
	staged []inspect.StagedCount
}

var _ inspect.Dataplane = plane{}

func (plane) Name() string { return "none" }

func (plane) Direction(model.EndpointID, model.Direction) inspect.Direction {
	return inspect.Direction{}
}

func (p plane) Rules(id model.EndpointID, _ inspect.Counts, _ func(model.SetID) (string, bool)) ([]inspect.RuleRow, bool) {
	rows, ok := p.rules[id]
	return rows, ok
}

func (plane) RuleCounts() (inspect.Counts, error)           { return nil, nil }
func (plane) Sets() map[uint32]model.SetID                  { return nil }
func (p plane) Staged(inspect.Counts) []inspect.StagedCount { return p.staged }
func (plane) CIDRs(model.SetID) (string, []netip.Prefix)    { return "", nil }
func (plane) NodeAddrs() []netip.Addr                       { return nil }
func (plane) Attachments(rows []inspect.EndpointRow) error  { return nil }
