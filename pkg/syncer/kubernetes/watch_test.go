package kubernetes

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// A connection that breaks while it is read comes as an event that looks like an answer of the server. It is no other
// reason to complain than the server's being away.
func TestKubernetesWatchThatBreaksAtOnceIsNoFailureOfItsKind(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		f := &follower{kind: c.source.kinds[0], cancel: func(error) {}}
		w := apiwatch.NewFake()
		watch, err := f.newConversion(c.t.Context(), w, metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		go watch.run() // ends with the error
		status := apierrors.NewInternalError(errors.New("unable to decode an event from the watch stream: read tcp 10.0.0.1:4->10.0.0.2:6443: " +
			"read: software caused connection abort")).Status()
		c.stop()
		w.Error(&status)
		c.after(time.Minute)
		c.start()
		if e, open := <-watch.ResultChan(); !open || e.Type != apiwatch.Bookmark {
			t.Errorf("after the error: %v, open: %v; want a bookmark", e, open)
		}
		if e, open := <-watch.ResultChan(); open {
			t.Errorf("after the bookmark: %v", e)
		}
		c.logged("the API server cannot be reached", "the API server is reached again")
	})
}

// client-go hides why a watch was cut. The gate knows while the server is away.
func TestKubernetesExplainsACutWatchByTheOutage(t *testing.T) {
	inCluster(t, few, func(c *cluster) {
		k := c.source.kinds[0]
		want := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := c.reports.Kinds()[0].Error; got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		k.failed(errCut)
		want("the server is there", errCut.Error())
		c.stop()
		c.after(time.Minute)
		outage := c.source.gate.outage()
		if outage == "" {
			t.Fatal("no outage")
		}
		k.failed(errCut)
		want("cut during an outage", outage)
		k.failed(errSilent)
		want("another failure during an outage", errSilent.Error())
		c.start()
	})
}
