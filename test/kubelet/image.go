// Package kubelet proves the DaemonSet on a node of real parts: the kubelet, containerd and runc start its containers from an image, with
// the rights, mounts and probes that deploy/ gives them.
package kubelet

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// image is a container image of one layer.
type image struct {
	Name       string   // repository:tag
	Root       string   // directory that is its root file system; empty: it has Files only
	Files      []string // executables, put into /usr/local/bin
	Entrypoint []string
	Cmd        []string
}

// write writes the image in the format of docker save.
func (i image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("make the layer of image %s: %w", i.Name, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Cmd},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range map[string][]byte{"config.json": config, "layer.tar": layer, "manifest.json": manifest} {
		if err := add(w, name, 0o644, content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

func (i image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if i.Root != "" {
		if err := addTree(w, i.Root); err != nil {
			return nil, err
		}
	}
	for _, file := range i.Files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := add(w, "usr/local/bin/"+filepath.Base(file), 0o755, content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// addTree adds directories, files and symbolic links below root.
func addTree(w *tar.Writer, root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0 {
			return nil // devices: the runtime makes those of a container
		}
		target := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		h.Name = name
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	})
}
