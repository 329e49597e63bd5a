package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write what the commands say into testdata instead of comparing")

// TestTranscripts runs the command lines of testdata/*.txtar, each in a directory with the archive's files. The file
// transcript holds the command lines, after "$ margay ", " < FILE" behind what reads standard input, each with what it must print: lines on standard output as
// they are, lines on standard error after "! ", and the exit status after "? ".
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			transcript := -1
			for i, f := range archive.Files {
				if f.Name == "transcript" {
					transcript = i
					continue
				}
				if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if transcript < 0 {
				t.Fatal("no file transcript")
			}
			want := archive.Files[transcript].Data
			got := replay(t, string(want))
			if *update {
				archive.Files[transcript].Data = []byte(got)
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// open opens a file of the archive for standard input.
func open(t *testing.T, name string) io.Reader {
	t.Helper()
	if name == "" {
		return strings.NewReader("")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(text)
}

// replay runs the transcript's command lines and returns the transcript as it came out.
func replay(t *testing.T, transcript string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(transcript) {
		command, ok := strings.CutPrefix(line, "$ margay ")
		if !ok {
			continue
		}
		var stdout, stderr bytes.Buffer
		command, input, _ := strings.Cut(command, " < ")
		status := executeFrom(t.Context(), strings.Fields(command), open(t, strings.TrimSpace(input)), &stdout, &stderr)
		out.WriteString(line)
		out.Write(stdout.Bytes())
		for text := range strings.Lines(stderr.String()) {
			out.WriteString("! " + text)
		}
		fmt.Fprintf(&out, "? %d\n", status)
	}
	return out.String()
}
