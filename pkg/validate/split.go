package validate

import "bytes"

// segment is the text of one YAML document.
type segment struct {
	text []byte
	line int // of its first line, counted from 1
}

// split cuts a file into its YAML documents. A line that starts with "---" or "...", followed by white space or
// nothing, is a boundary wherever it stands: YAML allows no scalar, quoted or block, to contain one. The "---" line
// belongs to the document it opens, because content may follow on it; comments and directives before it do too.
func split(file []byte) []segment {
	file = withoutMarks(file)
	var out []segment
	cur := segment{line: 1}
	start, onlyPreamble := 0, true
	cut := func(end, nextLine int) {
		cur.text = file[start:end]
		if len(bytes.TrimSpace(cur.text)) > 0 {
			out = append(out, cur)
		}
		start, cur, onlyPreamble = end, segment{line: nextLine}, true
	}
	for pos, line := 0, 1; pos < len(file); line++ {
		end := pos + len(file[pos:])
		if i := bytes.IndexByte(file[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		text := file[pos:end]
		switch {
		case isMarker(text, "---"):
			if !onlyPreamble {
				cut(pos, line)
			}
			onlyPreamble = false
		case isMarker(text, "..."):
			cut(pos, line+1)
			start = end
		case !isPreamble(text):
			onlyPreamble = false
		}
		pos = end
	}
	cut(len(file), 0)
	return out
}

// withoutMarks removes the byte order marks of a file and of those that were joined to it.
func withoutMarks(file []byte) []byte {
	const mark = "\ufeff"
	return bytes.ReplaceAll(bytes.TrimPrefix(file, []byte(mark)), []byte("\n"+mark), []byte("\n"))
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isPreamble reports whether the line is blank, a comment or a directive.
func isPreamble(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#' || line[0] == '%'
}
