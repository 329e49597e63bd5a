package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/margay-project/margay/pkg/config"
)

// settingFlags are a flag for each setting. The flags only record their texts: the layers parse them.
type settingFlags struct{ given []config.Flag }

// register registers the flags of settings; without names, of all.
func (f *settingFlags) register(fs *pflag.FlagSet, names ...string) {
	for _, s := range config.Settings() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		flag := fs.VarPF(&settingFlag{all: f, setting: s, last: s.Default()}, s.Name, "", s.Usage)
		grouped(fs, string(s.Group), s.Name)
		if s.Type == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// settingFlag is a pflag.Value.
type settingFlag struct {
	all     *settingFlags
	setting config.Setting
	last    string
}

func (f *settingFlag) String() string { return f.last }

// Set takes any text: the layers check it, and say the same of it wherever it comes from.
func (f *settingFlag) Set(text string) error {
	f.last = text
	f.all.given = append(f.all.given, config.Flag{Name: f.setting.Name, Value: text})
	return nil
}

// Type is the word of the help for a value.
func (f *settingFlag) Type() string { return f.setting.Type }

// local collects the flags, the environment and the file. The error is why the file cannot be read; without it the rest is complete.
func (f *settingFlags) local() (config.Local, error) {
	host, _ := os.Hostname()
	// As a kubelet names its node.
	local := config.Local{Host: strings.ToLower(host), Environment: os.Environ(), Flags: f.given, Uplinks: uplinks(), Loopbacks: loopbacks()}
	path, asked := local.ConfigFile()
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		local.File = &config.File{Path: path, Text: text}
	case asked || !errors.Is(err, fs.ErrNotExist):
		return local, fmt.Errorf("file of settings: %w", err)
	}
	return local, nil
}

// layers evaluates the flags, the environment and the file. Values that are not valid are the error; warnings are about
// variables that belong to no setting.
func (f *settingFlags) layers() (l *config.Layers, warnings []string, err error) {
	local, err := f.local()
	if err != nil {
		return nil, nil, err
	}
	l, warnings, err = config.New(local)
	if err == nil && l.Config().Node == "" {
		_, hostErr := os.Hostname()
		err = errors.Join(errors.New("the host has no name: give this node's with --node"), hostErr)
	}
	return l, warnings, err
}

// layersWithoutFile evaluates the flags and the environment.
func (f *settingFlags) layersWithoutFile() (*config.Layers, error) {
	local, _ := f.local() // the file does not count
	local.File = nil
	l, _, err := config.New(local)
	return l, err
}

// fileRequired reports whether the file of settings must exist: a user has named it.
func (f *settingFlags) fileRequired() bool {
	_, asked := config.Local{Environment: os.Environ(), Flags: f.given}.ConfigFile()
	return asked
}
