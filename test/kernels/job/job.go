// Package job is what the host and a guest of test/kernels say to each other: the host hands over a Request within the
// initial file system, the guest answers with lines on its console.
package job

import (
	"encoding/json"
	"strings"
	"time"
)

// RequestPath is where a guest finds its Request, as JSON.
const RequestPath = "/request.json"

// Request is what one guest is to do.
type Request struct {
	Modules []string // loaded before the first job; one that is missing is no error, the job that needs it fails
	Jobs    []Job    // run one after the other, whatever becomes of the earlier ones
}

// Job is one command in a guest.
type Job struct {
	Name    string
	Dir     string // working directory; empty: /
	Command []string
	Env     []string      // beside PATH and HOME
	Limit   time.Duration // by the guest's clock; then the command and its children are killed
}

// Result is what became of a job.
type Result struct {
	Job    string
	Status int     // exit status; -1: killed, or could not be started
	Took   float64 // seconds by the guest's clock
	Err    string  // what kept the job from ending by itself
}

// Report is the last thing a guest says.
type Report struct {
	Kernel string   // release
	Uptime float64  // seconds by the guest's clock
	Faults []string // lines of the kernel's log that say something is wrong in the kernel
}

// What the console's lines begin with. Lines that begin with none of them are the kernel's.
const (
	outputMark = "| "
	resultMark = "@result "
	reportMark = "@report "
)

// OutputLine is the console line for one line that a job wrote.
func OutputLine(line string) string { return outputMark + line }

// ResultLine is the console line for a result.
func ResultLine(r Result) string { return mark(resultMark, r) }

// ReportLine is the console line for a report.
func ReportLine(r Report) string { return mark(reportMark, r) }

func mark[T Result | Report](mark string, v T) string {
	text, err := json.Marshal(v)
	if err != nil { // numbers that are none, which nothing here produces
		return outputMark + err.Error()
	}
	return mark + string(text)
}

// Line is one line of a console: exactly one field is set, Kernel if it is the kernel's or garbled.
type Line struct {
	Output *string
	Result *Result
	Report *Report
	Kernel string
}

// Parse reads a line of a console. Carriage returns at its end do not count.
func Parse(text string) Line {
	text = strings.TrimRight(text, "\r\n")
	if output, ok := strings.CutPrefix(text, outputMark); ok {
		return Line{Output: &output}
	}
	if rest, ok := strings.CutPrefix(text, resultMark); ok {
		var r Result
		if json.Unmarshal([]byte(rest), &r) == nil {
			return Line{Result: &r}
		}
	}
	if rest, ok := strings.CutPrefix(text, reportMark); ok {
		var r Report
		if json.Unmarshal([]byte(rest), &r) == nil {
			return Line{Report: &r}
		}
	}
	return Line{Kernel: text}
}
