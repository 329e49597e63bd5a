package bpfmaps

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

const (
	// askFrom and askMost are ASK_FROM and ASK_MOST of bpf/lib/ask.h.
	askFrom, askMost = 16, 40
	askedSize        = int(unsafe.Sizeof(bpf.Asked{}))
)

// Asker asks the programs of one load how they would judge packets. Nothing comes of it: no flow, no counter, no event. Not
// safe for concurrent use.
type Asker struct {
	program *ebpf.Program
	data    []byte
	out     []byte
}

// Asker returns one that goes on asking the present programs when p is closed.
func (p *Programs) Asker() (*Asker, error) {
	program, err := p.Get(bpf.MargayProgAsk)
	if err != nil {
		return nil, err
	}
	own, err := program.Clone()
	if err != nil {
		return nil, fmt.Errorf("keep program %s: %w", bpf.MargayProgAsk, err)
	}
	return &Asker{program: own, data: make([]byte, askFrom+askMost*askedSize), out: make([]byte, askFrom+askMost*askedSize)}, nil
}

// Ask fills in the answers of all questions.
func (a *Asker) Ask(questions []bpf.Asked) error {
	for len(questions) > 0 {
		n := min(len(questions), askMost)
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(&questions[0])), n*askedSize)
		copy(a.data[askFrom:], bytes)
		end := askFrom + n*askedSize
		options := ebpf.RunOptions{Data: a.data[:end], DataOut: a.out[:end]}
		if _, err := a.program.Run(&options); err != nil {
			return fmt.Errorf("run program %s: %w", bpf.MargayProgAsk, err)
		}
		if len(options.DataOut) < end {
			return fmt.Errorf("run program %s: %d of %d bytes came back", bpf.MargayProgAsk, len(options.DataOut), end)
		}
		copy(bytes, options.DataOut[askFrom:end])
		questions = questions[n:]
	}
	return nil
}

// Close lets go of the program.
func (a *Asker) Close() error { return a.program.Close() }
