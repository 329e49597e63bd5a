package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// URL is the API server's address for nodes, pods and outside hosts of the lab.
func (c *ControlPlane) URL() string { return "https://" + c.endpoint().String() }

// CA is the certificate of the cluster's authority, in PEM.
func (c *ControlPlane) CA() []byte { return bytes.Clone(c.ca.pem) }

// Admin is a configuration for clients in this process that may do everything, without rate limits. Connections are made
// on the control plane's host, so Isolate does not cut them off.
func (c *ControlPlane) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

func (c *ControlPlane) config(p pair) *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem, CertData: p.cert, KeyData: p.key},
		Dial:            c.dial,
		QPS:             -1,
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"},
	}
}

// Kubeconfig writes a kubeconfig with a client certificate of the user and returns its path.
func (c *ControlPlane) Kubeconfig(user string, groups ...string) (string, error) {
	p, err := c.ca.client(user, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(user, &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key})
}

// AdminKubeconfig writes a kubeconfig that may do everything, for kubectl on hosts of the lab.
func (c *ControlPlane) AdminKubeconfig() (string, error) {
	return c.Kubeconfig("admin", "system:masters")
}

// ServiceAccountKubeconfig writes a kubeconfig with a token of the service account that lasts as long as given, of which
// the API server grants 10 minutes at least.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string, valid time.Duration) (string, error) {
	token, err := c.Token(ctx, namespace, name, valid)
	if err != nil {
		return "", err
	}
	return c.TokenKubeconfig(namespace+"-"+name, token)
}

// TokenKubeconfig writes a kubeconfig with the token.
func (c *ControlPlane) TokenKubeconfig(name, token string) (string, error) {
	return c.writeKubeconfig(name, &clientcmdapi.AuthInfo{Token: token})
}

// Token asks the API server for a token of the service account.
func (c *ControlPlane) Token(ctx context.Context, namespace, name string, valid time.Duration) (string, error) {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return "", fmt.Errorf("make a client of the API server: %w", err)
	}
	seconds := int64(valid.Seconds())
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of service account %s/%s: %w", namespace, name, err)
	}
	return answer.Status.Token, nil
}

func (c *ControlPlane) writeKubeconfig(name string, user *clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: c.URL(), CertificateAuthorityData: c.ca.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: name}},
		CurrentContext: "test",
	}
	content, err := clientcmd.Write(config)
	if err != nil {
		return "", fmt.Errorf("encode the kubeconfig of %s: %w", name, err)
	}
	path := c.file(strings.ReplaceAll(name, ":", "-") + ".kubeconfig")
	// Several processes may read the same one while it is written anew.
	temporary := path + "." + strconv.FormatUint(c.written.Add(1), 10)
	if err := errors.Join(os.WriteFile(temporary, content, 0o600), os.Rename(temporary, path)); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return path, nil
}

// local is a client of what serves on the host's loopback interface, whose certificates say nothing.
func (c *ControlPlane) local() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DialContext: c.dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
}

// Compact makes etcd forget its history up to now: who resumes a watch from before is told that it is too late.
func (c *ControlPlane) Compact(ctx context.Context) error {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcd(ctx, "/v3/maintenance/status", struct{}{}, &status); err != nil {
		return err
	}
	request := map[string]any{"revision": status.Header.Revision, "physical": true}
	return c.etcd(ctx, "/v3/kv/compaction", request, &struct{}{})
}

// DeleteKey deletes an object behind the API server's back, as happens when it is down and another one is not. The key
// is, for example, /registry/networkpolicies/shop/db.
func (c *ControlPlane) DeleteKey(ctx context.Context, key string) error {
	var answer struct {
		Deleted string `json:"deleted"`
	}
	request := map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(key))}
	if err := c.etcd(ctx, "/v3/kv/deleterange", request, &answer); err != nil {
		return err
	}
	if answer.Deleted != "1" {
		return fmt.Errorf("delete %s in etcd: no such key", key)
	}
	return nil
}

// etcd makes a call through etcd's JSON gateway.
func (c *ControlPlane) etcd(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode etcd request %s: %w", path, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make etcd request %s: %w", path, err)
	}
	got, err := c.local().Do(r)
	if err != nil {
		return fmt.Errorf("ask etcd %s: %w", path, err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return fmt.Errorf("read etcd's answer to %s: %w", path, err)
	}
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd %s: %s: %s", path, got.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("decode etcd's answer to %s: %w", path, err)
	}
	return nil
}
