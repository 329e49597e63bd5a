// Package e2e proves the whole agent: `margay run` as a process on the nodes of a lab, manifests in a directory, real
// pods, real traffic.
package e2e

import (
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
)

const (
	soon  = testcluster.Soon
	never = testcluster.Never
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// cluster has, beside what tests of agents share, what only those of this package do.
type cluster struct{ *testcluster.Cluster }

func newCluster(t *testing.T, nodes []string, flags ...string) *cluster {
	t.Helper()
	return &cluster{testcluster.New(t, nodes, flags...)}
}
