package etcd

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens to a server and to connections to it: what the consumer has in the end is what the server has.
func TestConvergesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newReady()
		w := follow(t, f)
		defer w.stop()
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		levels := rapid.SampledFrom([]string{"", "Info", "Debug"})
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 11).Draw(rt, "what") {
			case 0:
				f.set(true, nil)
			case 1:
				f.compact()
			case 2:
				f.restore(rapid.Int64Range(max(f.compacted, 1), f.revision).Draw(rt, "revision"))
			case 3:
				putReady(f, rapid.Bool().Draw(rt, "ready"))
			case 4:
				f.write(readyKey, "")
			case 5:
				f.set(true, func() { f.fail = errors.New("away") })
			case 6:
				f.set(false, func() { f.fail = nil })
			case 7:
				time.Sleep(time.Millisecond)
			default:
				putFelix(f, names.Draw(rt, "name"), levels.Draw(rt, "level"))
			}
		}
		putReady(f, true)
		f.set(false, func() { f.fail = nil })
		f.mu.Lock()
		want := map[string]string{}
		for _, e := range f.history {
			for _, name := range []string{"a", "b", "c", "d"} {
				for _, level := range []string{"", "Info", "Debug"} {
					if key, value := felix(name, level); e.key == key && string(e.value) == value {
						want[name] = level
					}
				}
				if want[name] == "" {
					delete(want, name)
				}
			}
		}
		f.mu.Unlock()
		w.until(fmt.Sprint(want), func() bool { return w.inSync && maps.Equal(w.objects, want) })
	})
}
