package bpfmaps

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FlowClock reads the clock by which flows are seen: the kernel's tick counter, shifted by 4, and how often it ticks a second. The
// kernel shows it to root.
func FlowClock() (now uint32, hz float64, err error) {
	const path = "/proc/timer_list"
	var resolution unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &resolution); err != nil || resolution.Nano() <= 0 {
		return 0, 0, fmt.Errorf("resolution of the coarse clock: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, 0, fmt.Errorf("read the kernel's tick counter: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "jiffies: ")
		if !ok {
			continue
		}
		ticks, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the kernel's tick counter in %s: %w", path, err)
		}
		return uint32(ticks >> 4), math.Round(1e9 / float64(resolution.Nano())), nil
	}
	return 0, 0, errors.Join(fmt.Errorf("read the kernel's tick counter: there is none in %s", path), lines.Err())
}
