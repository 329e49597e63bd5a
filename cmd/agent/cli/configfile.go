package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
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

// followFile delivers the file of settings whenever its text has changed since the start; nil when it is gone. It ends
// with ctx.
func followFile(ctx context.Context, path string, log *slog.Logger) <-chan *config.File {
	files := make(chan *config.File)
	known, _ := os.ReadFile(path) // that it cannot be read was, or will be, said
	go func() {
		look := time.NewTimer(lookAgain)
		defer look.Stop()
		said, last := "", known
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
			look.Reset(lookAgain)
			text, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				if said != err.Error() {
					log.Error("the file of settings cannot be read, its last valid version stays in force", "err", err)
					said = err.Error()
				}
				continue
			}
			said = ""
			before := last
			last = text
			switch {
			case same(text, known):
				continue
			case !same(text, before):
				look.Reset(quietFor)
				continue
			}
			known = text
			var file *config.File
			if err == nil {
				file = &config.File{Path: path, Text: text}
			}
			select {
			case files <- file:
			case <-ctx.Done():
				return
			}
		}
	}()
	return files
}

// same reports whether two texts of the file are the same; nil: there is no file.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
