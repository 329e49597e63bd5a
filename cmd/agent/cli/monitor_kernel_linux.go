package cli

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/flowring"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
)

// lookForAgent is how often a monitor that reads the kernel's events looks for an agent, which they belong to.
const lookForAgent = time.Second

// read prints the kernel's events itself until ctx ends or an agent answers.
func (m *flowMonitor) read(ctx context.Context) error {
	if m.instance.byIPTables() {
		return errors.New("no agent runs, and where iptables enforces only an agent makes events: start margay run")
	}
	maps, err := m.instance.openMaps(ctx)
	if err != nil {
		return err
	}
	defer maps.Close()
	events, err := maps.Events.Open()
	if err != nil {
		return err
	}
	why := "no agent runs"
	if says := m.instance.unanswered(inspect.ErrNotRunning); says != "" {
		why = says
	}
	m.notice(why + ": reading events from the kernel itself; another reader at the same time would take some of them, " +
		"and of the other ends only pods of this node have names")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hub := flows.NewHub(flows.Kept)
	s := hub.Subscribe(m.filter, m.since)
	reader := flowring.New(flowring.Options{
		Events: events, Names: maps.Names, Rules: maps, Name: pinnedNames(maps), Publish: hub.Publish, Awaited: func() bool { return true },
	})
	ended := make(chan error, 1)
	go func() {
		ended <- reader.Run(ctx)
		cancel()
	}()
	go m.awaitAgent(ctx, cancel)
	for err = error(nil); err == nil; {
		var records []*flows.Record
		var lost uint64
		records, lost, err = s.Next(ctx, flows.Kept)
		if err == nil && lost > 0 {
			err = m.lost(lost)
		}
		for _, r := range records {
			if err == nil {
				err = m.print(r)
			}
		}
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	cancel()
	return errors.Join(err, <-ended)
}

// awaitAgent calls found as soon as an agent answers on the socket.
func (m *flowMonitor) awaitAgent(ctx context.Context, found context.CancelFunc) {
	look := time.NewTicker(lookForAgent)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.instance.socketPath())
		if err == nil {
			conn.Close()
			found()
			return
		}
	}
}

// pinnedNames gives flows the names that the last agent has left in the maps.
func pinnedNames(m *bpfmaps.Maps) func(context.Context, []flows.Unnamed) {
	byIndex, byAddr := map[uint32]inspect.EndpointRow{}, map[netip.Addr]*flows.Peer{}
	rows, _ := pinnedEndpoints(m) // without them, records have no names
	for _, e := range rows {
		byIndex[e.Ifindex] = e
		for _, a := range e.Addrs {
			if name := endpointName(&e); name != "" {
				byAddr[a] = &flows.Peer{Kind: flows.PeerPod, Name: name}
			}
		}
	}
	return func(_ context.Context, batch []flows.Unnamed) {
		for _, u := range batch {
			e := byIndex[u.Ifindex]
			u.Record.Endpoint, u.Record.Interface, u.Record.Peer = endpointName(&e), e.Interface, byAddr[u.Record.Remote()]
		}
	}
}
