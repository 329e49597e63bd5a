package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// felix is the FelixConfiguration default with one field.
func felix(field, value string) model.ConfigurationUpdate {
	return model.ConfigurationUpdate{Name: "default", Configuration: &model.Configuration{Values: map[string]string{field: value}}}
}

func TestALogLevelOfTheDatastoreAppliesLive(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), felix("logSeverityScreen", "Debug"), model.InSync{})
		if r.level.Level() != slog.LevelDebug {
			t.Errorf("level %v, want debug", r.level.Level())
		}
		r.put(felix("logSeverityScreen", "Error"))
		if r.level.Level() != slog.LevelError || r.dp.State().Reopens != 0 {
			t.Errorf("level %v after a change, %d reopens", r.level.Level(), r.dp.State().Reopens)
		}
		r.put(model.ConfigurationUpdate{Name: "default"})
		if r.level.Level() != slog.LevelInfo {
			t.Errorf("level %v without the object, want info", r.level.Level())
		}
	})
}

func TestADataplaneSettingReopensTheDataplaneWithEverythingThatIsDesired(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), pod(2), model.InSync{})
		r.put(felix("defaultEndpointToHostAction", "Drop"))
		if s := r.dp.State(); s.Reopens != 1 || !s.Config.HostDrop {
			t.Errorf("%d reopens, drop to the host %t", s.Reopens, s.Config.HostDrop)
		}
		r.wantEnforced(t, 2)
		r.put(pod(3))
		r.wantEnforced(t, 3)
		if n := strings.Count(r.log.String(), "the configuration has changed"); n != 1 {
			t.Errorf("the change is in the log %d times:\n%s", n, &r.log)
		}
	})
}

func TestAConfigurationThatCannotBeLoadedHoldsNothingUpAndIsTriedAgain(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		r.dp.Set(dataplane.FakeSettings{ReopenErr: errors.New("no memory")})
		r.put(felix("defaultEndpointToHostAction", "Drop"))
		r.dp.Set(dataplane.FakeSettings{})
		time.Sleep(time.Second)
		r.put(pod(2))
		r.wantEnforced(t, 2)
		if s := r.dp.State(); s.Config.HostDrop || s.Reopens != 2 {
			t.Errorf("at once: drop to the host %t, %d reopens", s.Config.HostDrop, s.Reopens)
		}
		if strings.Contains(r.log.String(), "the configuration has changed") {
			t.Errorf("the log says that it is in force:\n%s", &r.log)
		}
		time.Sleep(2 * time.Minute)
		if s := r.dp.State(); !s.Config.HostDrop || s.Reopens != 3 {
			t.Errorf("later: drop to the host %t, %d reopens", s.Config.HostDrop, s.Reopens)
		}
		r.wantEnforced(t, 2)
	})
}

func TestAConfigurationThatCannotBeLoadedMayBeTakenBack(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		r.dp.Set(dataplane.FakeSettings{ReopenErr: errors.New("no memory")})
		r.put(felix("defaultEndpointToHostAction", "Drop"))
		r.put(felix("defaultEndpointToHostAction", "Accept"))
		r.dp.Set(dataplane.FakeSettings{})
		time.Sleep(5 * time.Minute)
		if s := r.dp.State(); s.Config.HostDrop {
			t.Errorf("drop to the host %t", s.Config.HostDrop)
		}
		r.wantEnforced(t, 1)
	})
}

func TestAKindThatCannotBeListedConfiguresWhatItDidBeforeEverythingStartedAnew(t *testing.T) {
	before := func(o *Options) {
		o.Settings.Apply([]model.Update{felix("defaultEndpointToHostAction", "Drop")})
		o.Settings.SourceRestarted()
		if err := errors.Join(o.Dataplane.Configure(o.Settings.Config().Config), o.Dataplane.Reopen()); err != nil {
			t.Fatal(err)
		}
	}
	runPrepared(t, itself, before, func(t *testing.T, r *rig) {
		status := syncer.KindStatus{Kind: "FelixConfiguration", State: syncer.KindFailing}
		r.report(status)
		r.put(pod(1), model.InSync{})
		time.Sleep(time.Minute)
		if s := r.dp.State(); !s.Config.HostDrop || len(s.Endpoints) != 1 {
			t.Errorf("while it fails: drop to the host %t, %d endpoints", s.Config.HostDrop, len(s.Endpoints))
		}
		status.State, status.Listed = syncer.KindSynced, true
		r.report(status)
		time.Sleep(3 * time.Second)
		if s := r.dp.State(); s.Config.HostDrop || len(s.Endpoints) != 1 {
			t.Errorf("when it is listed and empty: drop to the host %t, %d endpoints", s.Config.HostDrop, len(s.Endpoints))
		}
	})
}

// A source delivers a kind's objects and then reports the kind as listed, at any moment of the look for what may be forgotten.
func TestSettingsAreKeptWhileTheirObjectWaits(t *testing.T) {
	layers, _, err := config.New(config.Local{Host: "n"})
	if err != nil {
		t.Fatal(err)
	}
	object := felix("interfacePrefix", "eni")
	layers.Apply([]model.Update{object})
	layers.SourceRestarted()
	s := newSettings(layers, nil)
	s.apply(Batch{InSync: true})
	box, reports := newInbox("n"), syncer.NewReports()
	kinds := func() []syncer.KindStatus { // the source delivers just now
		box.put([]model.Update{object}, time.Now())
		reports.Note(syncer.Batch{Kinds: []syncer.KindStatus{{Kind: "FelixConfiguration", State: syncer.KindSynced, Listed: true}}})
		return reports.Kinds()
	}
	if s.forget(kinds, box.empty) || layers.Config().InterfacePrefix != "eni" {
		t.Errorf("the prefix is %q while the object that sets it waits", layers.Config().InterfacePrefix)
	}
	s.apply(box.drain(1))
	if s.forget(reports.Kinds, box.empty); layers.Config().InterfacePrefix != "eni" {
		t.Errorf("the prefix is %q with the object that sets it", layers.Config().InterfacePrefix)
	}
}

func TestAFileMayMendWhatKeepsTheDatastoreFromBeingRead(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1)) // and never more of it
		r.files <- &config.File{Path: "margay.yaml", Text: []byte("log-level: debug\n")}
		synctest.Wait()
		select {
		case <-r.ended:
			t.Fatalf("ended with %v for what takes no restart", r.err)
		default:
		}
		r.files <- &config.File{Path: "margay.yaml", Text: []byte("kubeconfig: /etc/margay/kubeconfig\n")}
		synctest.Wait()
		select {
		case <-r.ended:
		default:
			t.Fatal("the file is not read before the first snapshot is complete, which never will be")
		}
		if !errors.Is(r.err, ErrRestart) || !strings.Contains(r.err.Error(), "kubeconfig") {
			t.Errorf("ended with %v, want a restart for kubeconfig", r.err)
		}
		r.err = nil
	})
}

func TestWhatTheFirstSnapshotConfiguresIsInForceBeforeAnythingIsEnforced(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(felix("defaultEndpointToHostAction", "Drop"), pod(1))
		if s := r.dp.State(); s.Reopens != 0 {
			t.Errorf("%d reopens before the snapshot was complete", s.Reopens)
		}
		r.put(model.InSync{})
		if s := r.dp.State(); s.Reopens != 1 || s.Applies != 1 || !s.Config.HostDrop {
			t.Errorf("%d reopens, %d applications, drop to the host %t", s.Reopens, s.Applies, s.Config.HostDrop)
		}
	})
}

func TestASettingThatTakesARestartEndsTheLoop(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		r.put(felix("interfacePrefix", "tap"))
		<-r.ended
		if !errors.Is(r.err, ErrRestart) || !strings.Contains(r.err.Error(), "interface-prefix") {
			t.Errorf("ended with %v, want a restart for interface-prefix", r.err)
		}
		if r.dp.State().Closed {
			t.Error("the dataplane was closed")
		}
		r.err = nil
	})
}

func TestAnInvalidValueOfTheDatastoreIsSaidOnceAndTheOldOneStays(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), felix("logSeverityScreen", "Warning"), model.InSync{})
		r.put(felix("logSeverityScreen", "Loud"))
		r.put(pod(2), felix("logSeverityScreen", "Loud"))
		if r.level.Level() != slog.LevelWarn {
			t.Errorf("level %v, want warn, as before", r.level.Level())
		}
		if n := strings.Count(r.log.String(), "FelixConfiguration default, field logSeverityScreen"); n != 1 {
			t.Errorf("the value is in the log %d times:\n%s", n, &r.log)
		}
		if ps := configProblems(r.config); len(ps) != 1 || ps[0].Ref.Kind != "FelixConfiguration" {
			t.Errorf("problems %v", ps)
		}
	})
}

func TestAConfigurationFileAppliesLive(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		r.files <- &config.File{Path: "margay.yaml", Text: []byte("log-level: debug\nexisting-connections: keep\n")}
		synctest.Wait()
		if s := r.dp.State(); r.level.Level() != slog.LevelDebug || !s.Config.KeepExisting || s.Reopens != 1 {
			t.Errorf("level %v, keep %t, %d reopens", r.level.Level(), s.Config.KeepExisting, s.Reopens)
		}
		r.files <- &config.File{Path: "margay.yaml", Text: []byte("log-level: loud\n")}
		synctest.Wait()
		if r.level.Level() != slog.LevelDebug || !strings.Contains(r.log.String(), "margay.yaml line 1") {
			t.Errorf("level %v after an invalid file:\n%s", r.level.Level(), &r.log)
		}
		// An agent that starts with this file ends at once, so one line of the log is not enough.
		ps := configProblems(r.config)
		if len(ps) != 1 || ps[0].Ref.Kind != "Node" || ps[0].Severity != validate.Rejected || !strings.Contains(ps[0].Reason, "margay.yaml line 1") {
			t.Errorf("problems %v, want the file as one of the node", ps)
		}
		r.files <- &config.File{Path: "margay.yaml", Text: []byte("log-level: warn\n")}
		synctest.Wait()
		if ps := configProblems(r.config); r.level.Level() != slog.LevelWarn || len(ps) != 0 {
			t.Errorf("level %v, problems %v after the file was corrected", r.level.Level(), ps)
		}
	})
}

func TestAConfigurationFileThatCannotBeReadIsAProblemUntilItCan(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		good := &config.File{Path: "margay.yaml", Text: []byte("event-rate: 500\n")}
		bad := &config.File{Path: "margay.yaml", Err: errors.New("open margay.yaml: permission denied")}
		r.files <- good
		synctest.Wait()
		for range 2 {
			r.files <- bad
			synctest.Wait()
			ps := configProblems(r.config)
			if rate := r.config.Config().EventRate; rate != 500 || len(ps) != 1 || ps[0].Ref.Kind != "Node" || !strings.Contains(ps[0].Reason, bad.Err.Error()) {
				t.Errorf("rate %d, problems %v, want the file as one of the node", rate, ps)
			}
			r.files <- good
			synctest.Wait()
			if ps := configProblems(r.config); len(ps) != 0 {
				t.Errorf("problems %v after the file was corrected", ps)
			}
		}
		r.files <- good
		synctest.Wait()
		if n := strings.Count(r.log.String(), "the configuration file can be used again and is in force"); n != 2 {
			t.Errorf("logged %d times for 2 corrections:\n%s", n, &r.log)
		}
	})
}

func TestSnapshotsCountWhatThereIs(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		far := pod(2)
		far.Endpoint.Node, far.Endpoint.Addrs = "elsewhere", []netip.Addr{netip.MustParseAddr("10.1.1.1")}
		r.put(pod(1), far, model.InSync{})
		draft := inspect.StagedCount{Rule: model.RuleID{Policy: model.PolicyKey{Name: "draft"}, Staged: true}, Packets: 3}
		api := &API{Loop: r.Loop, Health: r.health, Reports: r.Reports(), Plane: plane{staged: []inspect.StagedCount{draft}}}
		s, err := api.Snapshot(context.Background(), false)
		if want := []metrics.StagedCount{{Rule: draft.Rule, Flows: 3}}; !slices.Equal(s.Staged, want) {
			t.Errorf("staged %+v, want %+v", s.Staged, want)
		}
		if err != nil || !s.InSync || !s.Ready || s.Graph.RemoteEndpoints != 1 || s.Dataplane.Enforced != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		for _, c := range s.Components {
			if !c.Live || c.Name == "loop" && !c.Ready {
				t.Errorf("component %+v", c)
			}
		}
	})
}
