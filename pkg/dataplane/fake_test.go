package dataplane

import "testing"

func TestTheFakeTakesAConfigurationWhenItIsReopened(t *testing.T) {
	f := NewFake()
	c := Defaults()
	c.HostDrop = true
	if err := f.Configure(c); err != nil || f.State().Config.HostDrop {
		t.Errorf("error %v, in force before it is reopened: %v", err, f.State().Config.HostDrop)
	}
	if err := f.Reopen(); err != nil || !f.State().Config.HostDrop {
		t.Errorf("error %v, in force: %v", err, f.State().Config.HostDrop)
	}
}
