package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/margay-project/margay/pkg/config"
)

// lookAgain is how often the file of settings is looked at. It is small, and what mounts it (a ConfigMap is a symbolic
// link that is switched) is recognised as changed by its text only.
const lookAgain = 5 * time.Second

// quietFor is how long a changed file must stay unchanged: an editor that empties it and writes it again must not make
// every agent restart with built-in values.
const quietFor = 500 * time.Millisecond

// followFile delivers the file of settings whenever its text has changed since the start, or it cannot be read; nil when it is gone.
// A required file that is gone cannot be read: an agent that started now would end at once. It ends with ctx.
func followFile(ctx context.Context, path string, required bool) <-chan *config.File {
	files := make(chan *config.File)
	known := lookAt(path, required)
	if known.failed() {
		known = fileState{} // the file has been read before
	}
	go func() {
		look := time.NewTimer(lookAgain)
		defer look.Stop()
		last := known
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			look.Reset(lookAgain)
			now, before := lookAt(path, required), last
			last = now
			switch {
			case now.same(known):
				continue
			case !now.same(before):
				look.Reset(quietFor)
				continue
			}
			known = now
			select {
			case files <- now.File:
			case <-ctx.Done():
				return
			}
		}
	}()
	return files
}

// fileState is what a look at the file of settings found. Without a file there is none.
type fileState struct{ *config.File }

func lookAt(path string, required bool) fileState {
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		return fileState{&config.File{Path: path, Text: text}}
	case errors.Is(err, fs.ErrNotExist) && !required:
		return fileState{}
	}
	return fileState{&config.File{Path: path, Err: err}}
}

func (s fileState) failed() bool { return s.File != nil && s.Err != nil }

// same reports whether two looks have found the same.
func (s fileState) same(o fileState) bool {
	if s.File == nil || o.File == nil {
		return s.File == o.File
	}
	if s.Err != nil || o.Err != nil {
		return s.Err != nil && o.Err != nil && s.Err.Error() == o.Err.Error()
	}
	return bytes.Equal(s.Text, o.Text)
}
