package main

import (
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/test/kernels/job"
)

func TestTheNewestKernelOfASeriesIsChosen(t *testing.T) {
	names := []string{
		"linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-56-cloud-amd64", "linux-image-6.1.0-56-cloud-amd64-dbg",
		"linux-image-6.12.95+deb12-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64",
		"linux-image-6.12.90+deb12.1-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
		"linux-image-7.3.4+deb13-cloud-amd64", "linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64",
	}
	for series, want := range map[string]string{
		"6.1": "linux-image-6.1.0-56-cloud-amd64", "6.12": "linux-image-6.12.117+deb12-cloud-amd64",
		"": "linux-image-7.3.4+deb13-cloud-amd64", "6.6": "",
	} {
		if got := newest(names, series); got != want {
			t.Errorf("series %q: %q, want %q", series, got, want)
		}
	}
}

func TestEveryGuestOfThePlanCanBeBooted(t *testing.T) {
	for _, short := range []bool{false, true} {
		names := map[string]bool{}
		for _, g := range plan(short) {
			if machines[g.arch].emulator == "" || g.limit == 0 || names[g.name] {
				t.Errorf("guest %+v", g)
			}
			names[g.name] = true
			tasks := map[string]bool{}
			for i, j := range request(g).Jobs {
				if len(j.Command) == 0 || j.Limit <= 0 || j.Limit > g.limit || tasks[j.Name] || short && g.tasks[i].long {
					t.Errorf("guest %s: %+v", g.name, j)
				}
				tasks[j.Name] = true
			}
			if len(tasks) == 0 {
				t.Errorf("guest %s has nothing to do", g.name)
			}
		}
		for _, name := range []string{"6.1", "6.12", "newest", "6.12-arm64"} {
			if !names[name] {
				t.Errorf("short %v: no guest %s", short, name)
			}
		}
	}
}

func TestWhatATaskSaysIsJudged(t *testing.T) {
	refusal := "margay: kernel 6.1.0 cannot run\n"
	for name, c := range map[string]struct {
		check  func(int, string) error
		status int
		output string
		good   bool
	}{
		"succeeded":           {succeeded, 0, "", true},
		"failed":              {succeeded, 1, "", false},
		"says it":             {says(2, "kernel 6.1", "cannot"), 2, "first\n" + refusal, true},
		"another status":      {says(2, "kernel 6.1"), 1, refusal, false},
		"on two lines":        {says(2, "first", "kernel"), 2, "first\n" + refusal, false},
		"refuses":             {refuses("cannot run"), 2, `{"level":"INFO"}` + "\n" + refusal, true},
		"refuses and says on": {refuses("cannot run"), 2, refusal + "processed 7 insns\n", false},
		"refuses with 1":      {refuses("cannot run"), 1, refusal, false},
		"tests ran":           {ran, 0, "--- PASS: TestX\n", true},
		"no test ran":         {ran, 0, "testing: warning: no tests to run\nPASS\n", false},
		"a test was skipped":  {ran, 0, "--- PASS: TestX\n--- SKIP: TestY\n", false},
		"a test has failed":   {ran, 1, "--- PASS: TestX\n--- FAIL: TestY\n", false},
		"a subtest ran alone": {ran, 0, "    --- PASS: TestX/a\n", true},
	} {
		if err := c.check(c.status, c.output); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAConsoleIsFollowedToItsEnd(t *testing.T) {
	console := "\x1b[2J\x1bcSeaBIOS\r\n[ 0.1] Linux\r\n" + job.OutputLine("a") + "\r\n" + job.OutputLine("b") + "\n" +
		job.ResultLine(job.Result{Job: "one", Status: 1}) + "\n" + job.OutputLine("c") + "\n" +
		job.ResultLine(job.Result{Job: "two"}) + "\n" + job.ReportLine(job.Report{Kernel: "6.12"}) + "\n[ 9.9] reboot"
	var shown []string
	o := follow(strings.NewReader(console), func(line string) { shown = append(shown, line) })
	if got := strings.Join(shown, ""); got != "abc" {
		t.Errorf("shown: %q", got)
	}
	if o.output["one"] != "a\nb\n" || o.output["two"] != "c\n" || len(o.results) != 2 || o.results[0].Status != 1 {
		t.Errorf("%+v", o)
	}
	if o.report == nil || o.report.Kernel != "6.12" || strings.Join(o.kernel, "|") != "SeaBIOS|[ 0.1] Linux|[ 9.9] reboot" {
		t.Errorf("%+v", o)
	}
}

func TestAGuestHasNoNetworkAndEndsWithARestart(t *testing.T) {
	b := boot{arch: "arm64", kernel: "/k", initrd: "/i", counted: true, limit: time.Minute}
	name, args := b.command()
	line := name + " " + strings.Join(args, " ")
	for _, want := range []string{"qemu-system-aarch64", "-nodefaults", "-no-reboot", "-icount", "console=ttyAMA0", "-kernel /k", "-initrd /i"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
	for _, not := range []string{"-net", "-drive", "-virtfs"} {
		if strings.Contains(line, not) {
			t.Errorf("%q has %q", line, not)
		}
	}
}
