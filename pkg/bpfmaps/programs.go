package bpfmaps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Programs are the programs of one load, over the pinned maps.
type Programs struct{ collection *ebpf.Collection }

// LoadPrograms loads all programs with the configuration built in; how the flow tables are divided follows from their
// size. They use the pinned maps and nothing of an earlier
// load, so each start of the agent, and each change of configuration, loads again and updates the links. If the kernel
// refuses a program, the error ends with the verifier's last words; errors.As to *ebpf.VerifierError has all of them.
func (m *Maps) LoadPrograms(config bpf.Config) (*Programs, error) {
	spec := m.spec.Copy()
	variable := spec.Variables[bpf.MargayVarCfg]
	if variable == nil {
		return nil, errors.New("load programs: the BPF object has no configuration")
	}
	divide(&config, min(m.MaxEntries(bpf.MargayMapCt4), m.MaxEntries(bpf.MargayMapCt6)))
	if err := variable.Set(config); err != nil {
		return nil, fmt.Errorf("load programs: set configuration: %w", err)
	}
	replacements := make(map[string]*ebpf.Map, len(m.maps))
	for name, opened := range m.maps {
		replacements[name] = opened
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, fmt.Errorf("load programs: %w", err)
	}
	return &Programs{collection}, nil
}

// Get is the program of that name (bpf.MargayProg…). It belongs to p.
func (p *Programs) Get(name string) (*ebpf.Program, error) {
	program := p.collection.Programs[name]
	if program == nil {
		return nil, fmt.Errorf("the BPF object has no program %q", name)
	}
	return program, nil
}

// Close lets go of the programs; the links they are attached by keep them.
func (p *Programs) Close() error {
	p.collection.Close()
	return nil
}
