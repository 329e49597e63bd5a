package explain

import "github.com/margay-project/margay/pkg/model"

// Staged is what staged policies say of one side's packet, for tests.
func (s *State) Staged(of End, d model.Direction, p model.Packet) ([]StagedAnswer, error) {
	enforced, err := s.Side(of, d, p)
	if err != nil {
		return nil, err
	}
	variants, err := s.variants(of, d, mostStaged)
	return s.otherwise(variants, p, enforced), err
}
