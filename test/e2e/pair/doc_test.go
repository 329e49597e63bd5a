// Package pair plays random policies and random packets before two agents at once: one enforces with BPF, one with
// iptables. Both have the same manifests, and networks that are the same but for that. What arrives at one and not at the
// other is a defect of one of them, unless docs/iptables.md says that the dataplanes differ there; each such difference is a
// rule of differences_test.go.
//
// Everything that is sent follows from the seed. Sequences also follow from what has arrived.
//
//	MARGAY_E2E_PAIRS=100000 MARGAY_E2E_SEQUENCES=10000 MARGAY_E2E_PAIR_SEED=0 go test ./test/e2e/pair -timeout 2h
package pair

import (
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	seedEnv      = "MARGAY_E2E_PAIR_SEED"
	pairsEnv     = "MARGAY_E2E_PAIRS"
	sequencesEnv = "MARGAY_E2E_SEQUENCES"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// seedOf is the seed of a run: always the same one, unless another one is asked for. 0 stands for any.
func seedOf(t *testing.T, otherwise uint64) uint64 {
	seed := testutil.Number(t, seedEnv, otherwise)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%s=%d", seedEnv, seed)
	return seed
}

// The first packets of flows: both dataplanes and the oracle agree on each.
func TestBothDataplanesJudgeFirstPacketsAlike(t *testing.T) {
	seed, pairs := seedOf(t, 4), int(testutil.Number(t, pairsEnv, 5000))
	p := newPair(t, seed)
	for sent := 0; sent < pairs && !t.Failed(); sent += pairsPerPolicy {
		p.newPolicy()
		p.playPairs(min(pairsPerPolicy, pairs-sent))
	}
	p.finish()
}

// Sequences of packets of flows, over changes of policy: opens, answers, packets in mid-flow, fragments, errors, resets.
func TestBothDataplanesJudgeSequencesAlike(t *testing.T) {
	seed, sequences := seedOf(t, 27), int(testutil.Number(t, sequencesEnv, 500))
	p := newPair(t, seed)
	for played := 0; played < sequences && !t.Failed(); played += sequencesAtOnce {
		p.newPolicy()
		p.playSequences(min(sequencesAtOnce, sequences-played))
	}
	p.finish()
}
