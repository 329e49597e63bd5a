package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Etcd says how etcd is reached. Files are empty or a path.
type Etcd struct {
	Endpoints    []string // URLs
	CAFile       string   // empty: whom the machine trusts
	CertFile     string
	KeyFile      string
	User         string // empty: none
	PasswordFile string
	DialTimeout  time.Duration
	KeepAlive    time.Duration
}

// leastKeepAlive is how often a server may be asked at most whether it is there: etcd cuts who asks more often.
const leastKeepAlive = 5 * time.Second

// etcdSettings are those of datastore etcd. Those that Felix and Calico's clients have are read from their variables, too.
var etcdSettings = []*Setting{
	repeatable(newSettingOf("etcd-endpoints", Restart, func(c *Config) *[]string { return &c.Etcd.Endpoints }, parseEndpoints, printEndpoints,
		slices.Equal[[]string],
		"https://HOST:PORT of each server of etcd (repeatable, or joined by commas)")).
		like(endpointsPattern).also("FELIX_ETCDENDPOINTS", "ETCD_ENDPOINTS"),
	textSetting("etcd-ca-file", Restart, func(c *Config) *string { return &c.Etcd.CAFile },
		"file of the certificates that those of etcd's servers are signed by (default: those that the machine trusts)").
		also("FELIX_ETCDCAFILE", "ETCD_CA_CERT_FILE"),
	textSetting("etcd-cert-file", Restart, func(c *Config) *string { return &c.Etcd.CertFile },
		"file of the certificate that the agent shows to etcd").also("FELIX_ETCDCERTFILE", "ETCD_CERT_FILE"),
	textSetting("etcd-key-file", Restart, func(c *Config) *string { return &c.Etcd.KeyFile },
		"file of its key").also("FELIX_ETCDKEYFILE", "ETCD_KEY_FILE"),
	textSetting("etcd-user", Restart, func(c *Config) *string { return &c.Etcd.User },
		"user of etcd").also("ETCD_USERNAME"),
	textSetting("etcd-password-file", Restart, func(c *Config) *string { return &c.Etcd.PasswordFile },
		"file of the user's password"),
	duration("etcd-dial-timeout", Restart, func(c *Config) *time.Duration { return &c.Etcd.DialTimeout }, time.Second,
		"how long connecting to etcd may take"),
	duration("etcd-keep-alive", Restart, func(c *Config) *time.Duration { return &c.Etcd.KeepAlive }, leastKeepAlive,
		"how long etcd may be silent before it is asked whether it is there"),
}

const endpointsPattern = `^ *https?://[^, ]+ *(, *https?://[^, ]+ *)*$`

// parseEndpoints reads URLs joined by commas.
func parseEndpoints(text string) ([]string, error) {
	var all []string
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		u, err := url.Parse(part)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
			return nil, errors.New("want https://HOST:PORT of each server, joined by commas")
		}
		if u.User != nil {
			return nil, errors.New("a user and a password do not belong here: see etcd-user and etcd-password-file")
		}
		if len(all) > 0 && !strings.HasPrefix(all[0], u.Scheme+":") {
			return nil, errors.New("want https for all servers, or http for all")
		}
		all = append(all, u.Scheme+"://"+u.Host)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func printEndpoints(all []string) string { return strings.Join(all, ",") }

// Check reports settings that are missing, or that exclude each other.
func (e Etcd) Check() error {
	secure := len(e.Endpoints) > 0 && strings.HasPrefix(e.Endpoints[0], "https:")
	switch {
	case len(e.Endpoints) == 0:
		return errors.New("--datastore etcd needs --etcd-endpoints, https://HOST:PORT of each server")
	case (e.CertFile == "") != (e.KeyFile == ""):
		return errors.New("--etcd-cert-file and --etcd-key-file go together")
	case (e.User == "") != (e.PasswordFile == ""):
		return errors.New("--etcd-user and --etcd-password-file go together")
	case !secure && e.CAFile+e.CertFile != "":
		return fmt.Errorf("certificates of etcd need https: --etcd-endpoints has %s", e.Endpoints[0])
	}
	return nil
}
