package directory

import (
	"slices"

	"github.com/margay-project/margay/pkg/validate"
)

// largeFile is how many bytes a file has at least that is parsed aside: those take more than some 20 ms.
const largeFile = 64 << 10

// aside parses large files, one at a time, beside everything else and with a lower priority. Files that have been read wait in the
// order in which they were, each with its newest text. The zero value has none.
type aside struct {
	parse func(path string, text []byte) []validate.Document
	queue []*large
	now   *large // being parsed; nil: none is
	done  chan []validate.Document
	turns uint64
}

// large is a file to be parsed.
type large struct {
	path     string
	text     []byte
	believed bool   // see catalog.put
	turn     uint64 // ascending
	void     bool   // the file is another by now, or gone
}

// add has a text of a file parsed.
func (a *aside) add(path string, text []byte, believed bool) {
	at := slices.IndexFunc(a.queue, func(l *large) bool { return l.path == path })
	if at >= 0 {
		a.queue[at].text, a.queue[at].believed = text, believed
		return
	}
	a.turns++
	a.queue = append(a.queue, &large{path: path, text: text, believed: believed, turn: a.turns})
	a.begin()
}

func (a *aside) begin() {
	if a.now != nil || len(a.queue) == 0 {
		return
	}
	a.now, a.queue = a.queue[0], a.queue[1:]
	next, done := a.now, make(chan []validate.Document, 1)
	a.done = done
	go func() {
		lowerPriority()
		done <- a.parse(next.path, next.text)
	}()
}

// end records that the documents from done were received, and returns the file they are of; nil: its text does not
// count any more.
func (a *aside) end() *large {
	l := a.now
	a.now, a.done = nil, nil
	a.begin()
	if l.void {
		return nil
	}
	return l
}

// drop forgets a file whose newer state is already known.
func (a *aside) drop(path string) {
	a.queue = slices.DeleteFunc(a.queue, func(l *large) bool { return l.path == path })
	if a.now != nil && a.now.path == path {
		a.now.void = true
	}
}

// paths are the files that wait or are parsed.
func (a *aside) paths() (all []string) {
	if a.now != nil && !a.now.void {
		all = append(all, a.now.path)
	}
	for _, l := range a.queue {
		all = append(all, l.path)
	}
	return all
}

// past reports whether all files have been parsed that were there to be parsed when turns was this.
func (a *aside) past(turn uint64) bool {
	if a.now != nil {
		return a.now.turn > turn
	}
	return true
}
