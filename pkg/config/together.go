package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// check reports values in force that cannot be used on this node, or not together, each with its source.
func (l *Layers) check() error {
	var errs []error
	if err := l.own.closes(l.Config().InterfacePrefix); err != nil {
		errs = append(errs, fmt.Errorf("%s %w", l.named(interfacePrefix), err))
	}
	return errors.Join(append(errs, l.exclusive()...)...)
}

// exclusive reports settings that exclude each other.
func (l *Layers) exclusive() (errs []error) {
	c := l.Config()
	if sameSocket(c.HealthAddress, c.MetricsAddress) {
		errs = append(errs, fmt.Errorf("%s and %s are the same: one of the two servers could not listen; give one another port, or off",
			l.named("health-address"), l.named("metrics-address")))
	}
	if c.PProf && c.HealthAddress == "" {
		errs = append(errs, fmt.Errorf("%s has no effect with %s: profiles are served at the health address; set that, or leave out pprof",
			l.named("pprof"), l.named("health-address")))
	}
	return errs
}

// named is a setting in an error, with its value in force and its source.
func (l *Layers) named(setting string) string {
	v := l.state.inForce(find(setting))
	switch flag := "--" + setting; v.source {
	case flag:
		return fmt.Sprintf("%s %q", flag, v.text)
	default:
		return fmt.Sprintf("%s %q (%s)", setting, v.text, v.source)
	}
}

// sameSocket reports whether two servers with these addresses would listen on the same port of the same address. Addresses are valid ones of
// settings; empty: off.
func sameSocket(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	i, j := strings.LastIndexByte(a, ':'), strings.LastIndexByte(b, ':')
	if strings.TrimLeft(a[i:], ":0") != strings.TrimLeft(b[j:], ":0") {
		return false
	}
	x, y := listensOn(a[:i]), listensOn(b[:j])
	return x == y || x.IsUnspecified() && (x.Is6() || y.Is4()) || y.IsUnspecified() && (y.Is6() || x.Is4())
}

// listensOn is the address of a host. Without one servers listen on 127.0.0.1.
func listensOn(host string) netip.Addr {
	if host == "" || host == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return netip.IPv6Unspecified()
	}
	return addr.Unmap()
}
