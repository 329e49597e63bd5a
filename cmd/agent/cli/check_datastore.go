package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/syncer/etcd"
	"github.com/margay-project/margay/pkg/syncer/kubernetes"
	"github.com/margay-project/margay/pkg/validate"
)

// datastoreSettings are those that say how a datastore is reached.
var datastoreSettings = []string{"datastore", "kubeconfig", "etcd-endpoints", "etcd-ca-file", "etcd-cert-file", "etcd-key-file",
	"etcd-user", "etcd-password-file", "etcd-dial-timeout", "config-file"}

const (
	// failsAfter is how long a datastore may fail before the command gives up, and unlistedAfter how long its list may take.
	failsAfter    = 10 * time.Second
	unlistedAfter = 5 * time.Minute
	// problemsWithin ends the wait for problems of objects, which may come after the objects.
	problemsWithin = 300 * time.Millisecond
)

// datastore checks the objects of a datastore, which is read as an agent with these flags would read it.
func (o *checkOptions) datastore(ctx context.Context, stderr io.Writer, report *checkReport) error {
	layers, warnings, err := o.settings.layers()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(stderr, "margay: warning:", w)
	}
	c := layers.Config()
	source, err := datastoreSource(c)
	if err != nil {
		return err
	}
	m, states, err := readDatastore(ctx, source)
	if err != nil {
		return fmt.Errorf("check datastore %s: %w", c.Datastore, err)
	}
	objects := 0
	for _, k := range states {
		if k.Kind != c.Datastore { // that row is all of them
			objects += k.Objects
		}
		if k.Error != "" && k.State != syncer.KindAbsent {
			report.Problems = append(report.Problems, inspect.ProblemRow{Severity: validate.Warning.String(), Object: k.Kind, Reason: k.Error})
		}
	}
	report.Notes = append(report.Notes, fmt.Sprintf("datastore %s has %s", c.Datastore, count(objects, "object")))
	return report.objects(m)
}

func datastoreSource(c config.Config) (syncer.Source, error) {
	log := slog.New(slog.DiscardHandler)
	pods := validate.Pods{Annotator: validate.Annotator(c.PodAnnotations), Prefix: c.InterfacePrefix,
		SourceSpoofing: c.SourceSpoofing}
	switch c.Datastore {
	case "etcd":
		return etcdSource(c.Etcd, pods, log)
	case "kubernetes":
		client, err := kube.Open(kube.Options{Kubeconfig: c.Kubeconfig, Version: version()})
		if err != nil {
			return nil, err
		}
		return kubernetes.New(client, pods, log), nil
	}
	return nil, errors.New("check --datastore: want kubernetes or etcd; a directory is checked with --dir")
}

func etcdSource(e config.Etcd, pods validate.Pods, log *slog.Logger) (syncer.Source, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	options := etcd.Options{Endpoints: e.Endpoints, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
		User: e.User, PasswordFile: e.PasswordFile, DialTimeout: e.DialTimeout, KeepAlive: e.KeepAlive}
	return etcd.New(options, kinds.All(pods), log), nil
}

// readDatastore returns the first full snapshot of a source, with how it stands with each kind.
func readDatastore(ctx context.Context, source syncer.Source) (*manifests, []syncer.KindStatus, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches, ended := make(chan syncer.Batch), make(chan error, 1)
	go func() {
		ended <- source.Run(ctx, func(b syncer.Batch) {
			select {
			case batches <- b:
			case <-ctx.Done():
			}
		})
	}()
	s := snapshot{reports: syncer.NewReports(), objects: map[model.Key]model.Update{}}
	patience, limit := time.NewTimer(failsAfter), time.NewTimer(unlistedAfter)
	defer patience.Stop()
	defer limit.Stop()
	var quiet <-chan time.Time
	for {
		select {
		case b := <-batches:
			s.note(b)
			if s.inSync {
				quiet = time.After(problemsWithin)
			}
		case <-quiet:
			return s.manifests(), s.reports.Kinds(), nil
		case <-patience.C:
			if why := s.failure(); why != nil && !s.inSync {
				return nil, nil, why
			}
			patience.Reset(time.Second)
		case <-limit.C:
			return nil, nil, errors.Join(errors.New("its objects could not be listed in time"), s.failure())
		case err := <-ended:
			return nil, nil, errors.Join(err, ctx.Err(), errors.New("reading ended before all objects were known"))
		}
	}
}

// snapshot collects the batches of a source.
type snapshot struct {
	reports *syncer.Reports
	objects map[model.Key]model.Update
	order   []model.Key
	inSync  bool
}

func (s *snapshot) note(b syncer.Batch) {
	s.reports.Note(b)
	for _, u := range b.Updates {
		if _, done := u.(model.InSync); done {
			s.inSync = true
			continue
		}
		key, _ := model.KeyOf(u)
		if _, known := s.objects[key]; !known {
			s.order = append(s.order, key)
		}
		s.objects[key] = u
	}
}

func (s *snapshot) manifests() *manifests {
	m := &manifests{problems: s.reports.Problems()}
	for _, key := range s.order {
		m.updates = append(m.updates, model.Unpack(s.objects[key]))
	}
	return m
}

// failure is why the first list of a kind is missing; nil: nothing is known to fail.
func (s *snapshot) failure() error {
	for _, k := range s.reports.Kinds() {
		if k.Required && !k.Listed && k.Error != "" {
			return fmt.Errorf("%s: %s", k.Kind, k.Error)
		}
	}
	return nil
}
