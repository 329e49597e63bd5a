package directory

import (
	"bytes"
	"time"
)

// A file that contains fewer objects than before may be in the middle of being written: emptied and filled again, moved
// away by an editor, removed and created again, or half written. So missing objects are deleted only if the file stays
// unchanged for a while. A file without any text never deletes objects: a full disk leaves such files. To delete all
// objects of a file, remove it or write a comment into it.

// believedAfter is how long a file must stay unchanged before the objects that it does not contain any more are
// deleted.
const believedAfter = time.Second

// losses are the files that say less than they did. The zero value has none.
type losses struct{ byPath map[string]loss }

type loss struct {
	since time.Time // the file is as it is
	gone  bool      // it is not there at all
	turn  uint64    // of the last file queued for parsing aside by then: a lost object may turn up in it
}

// begin notes that a file has just been found to say less, or to be gone. turn is the last of aside.
func (l *losses) begin(path string, gone bool, now time.Time, turn uint64) {
	if l.byPath == nil {
		l.byPath = map[string]loss{}
	}
	l.byPath[path] = loss{now, gone, turn}
}

func (l *losses) end(path string) { delete(l.byPath, path) }

// isGone reports whether a file is known to be gone.
func (l *losses) isGone(path string) bool { return l.byPath[path].gone }

// due reports whether a file has stayed as it is for long enough, and all files have been parsed that were there to be when
// that began, which past reports.
func (l *losses) due(path string, now time.Time, past func(turn uint64) bool) bool {
	loss, ok := l.byPath[path]
	return ok && now.Sub(loss.since) >= believedAfter && past(loss.turn)
}

// allDue are the files that are due.
func (l *losses) allDue(now time.Time, past func(turn uint64) bool) (paths []string) {
	for path := range l.byPath {
		if l.due(path, now, past) {
			paths = append(paths, path)
		}
	}
	return paths
}

// next is how long it is until a file is due; not ok: none will be before another file has been parsed.
func (l *losses) next(now time.Time, past func(turn uint64) bool) (wait time.Duration, ok bool) {
	for _, loss := range l.byPath {
		if !past(loss.turn) {
			continue
		}
		if left := max(loss.since.Add(believedAfter).Sub(now), 0); !ok || left < wait {
			wait, ok = left, true
		}
	}
	return wait, ok
}

// isBlank reports whether a file has no text. One with a comment has some.
func isBlank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }
