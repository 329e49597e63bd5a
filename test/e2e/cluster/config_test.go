package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/margay-project/margay/internal/testutil"
)

// What only a human can mend ends the agent at once, with one line that says what it is.
func TestBadConfigurationEndsTheAgentWithOneLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	loud, misspelt := file("loud.yaml", "node: n1\nlog-level: loud\n"), file("misspelt.yaml", "logLevel: debug\n")
	broken, aimless := file("broken", "clusters: ["), file("aimless", "apiVersion: v1\nkind: Config\nclusters: []\n")
	for _, tt := range []struct {
		name  string
		flags []string
		env   string
		want  []string
	}{
		{"flag", []string{"--log-level", "loud"}, "", []string{`--log-level "loud"`, "want debug, info, warn or error"}},
		{"no such flag", []string{"--log-levle", "debug"}, "", []string{"--log-levle"}},
		{"environment", nil, "MARGAY_LOG_LEVEL=loud", []string{`environment variable MARGAY_LOG_LEVEL "loud"`, "want debug, info, warn or error"}},
		{"file", []string{"--config-file", loud}, "", []string{loud + " line 2", `"loud"`, "want debug, info, warn or error"}},
		{"name in the file", []string{"--config-file", misspelt}, "", []string{misspelt + " line 1", "logLevel", "is log-level meant?"}},
		{"no file", []string{"--config-file", dir + "/none"}, "", []string{dir + "/none", "no such file"}},
		{"no way to the API server", []string{"--datastore", "kubernetes"}, "", []string{"not in a cluster", "--kubeconfig"}},
		{"no kubeconfig", []string{"--datastore", "kubernetes", "--kubeconfig", dir + "/none"}, "", []string{"kubeconfig " + dir + "/none does not exist"}},
		{"kubeconfig is none", []string{"--datastore", "kubernetes", "--kubeconfig", broken}, "", []string{"kubeconfig " + broken + " cannot be read", "line 1"}},
		{"kubeconfig is a directory", []string{"--datastore", "kubernetes", "--kubeconfig", dir}, "", []string{"kubeconfig " + dir + " cannot be read", "is a directory"}},
		{"kubeconfig without context", []string{"--datastore", "kubernetes", "--kubeconfig", aimless}, "", []string{"kubeconfig " + aimless + " has no current context"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(agentBinary(t), append([]string{"run"}, tt.flags...)...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), tt.env}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("ended with %v, want exit status 2", err)
			}
			text := string(out)
			if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "margay: ") {
				t.Errorf("want one line, got %q", text)
			}
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("want %q, got %q", w, text)
				}
			}
		})
	}
}

// patience is over which nothing is said twice: the agents try again several times.
const patience = 5 * time.Second

// trouble is what is wrong between one node and the API server.
type trouble struct {
	node   string
	server string // default: the API server
	ca     []byte // default: its authority
	user   clientcmdapi.AuthInfo
	want   []string // of the one line
}

// What may mend by itself, or while the agent runs, is said once, and tried again until it does. Each node has trouble of
// its own, all at the same time.
func TestTroubleIsSaidOnce(t *testing.T) {
	c := newCluster(t, options{nodeNames: []string{"refused", "blackhole", "untrusted", "expired", "invalid", "settings"}, proxy: "none", noAgents: true})
	c.apply(deployedRBAC(t))
	c.apply(felixCRD)
	token, err := c.plane.Token(t.Context(), agentNamespace, agentAccount, time.Hour)
	c.must(err)
	tokenFile := filepath.Join(c.dir, "token")
	c.must(os.WriteFile(tokenFile, []byte("nonsense"), 0o600))
	c.must(c.plane.Isolate(c.nodes[1].Node))
	url, elsewhere := c.plane.URL(), strings.Replace(c.plane.URL(), ":6443", ":6444", 1)
	good := clientcmdapi.AuthInfo{Token: token}
	troubles := []trouble{
		{node: "refused", server: elsewhere, user: good, want: []string{"the API server at " + elsewhere + " refuses connections"}},
		{node: "blackhole", user: good, want: []string{"the API server at " + url + " does not answer in time"}},
		{node: "untrusted", ca: otherAuthority(t), user: good, want: []string{"the certificate of the API server at " + url, "by an authority that is not trusted"}},
		{node: "expired", user: clientcmdapi.AuthInfo{Token: c.expired(token)},
			want: []string{"the API server at " + url, "(401): token in " + c.kubeconfigOf("expired") + " is expired or invalid"}},
		{node: "invalid", user: clientcmdapi.AuthInfo{TokenFile: tokenFile},
			want: []string{"the API server at " + url, "(401): token file " + tokenFile + " is expired or invalid"}},
	}
	from := map[string]int64{}
	for _, tr := range troubles {
		c.writeKubeconfig(tr)
		a := c.agentOn(tr.node)
		from[tr.node] = a.logged()
		c.must(a.launch())
	}
	for _, tr := range troubles {
		words := append(tr.want, "cannot be reached", "will try again", c.kubeconfigOf(tr.node), "context \"test\", user \"margay\"")
		c.once(c.nodeNamed(tr.node).agent, from[tr.node], words...)
	}
	said := time.Now()
	c.settingsAreSaidOnce(good)
	time.Sleep(patience - time.Since(said)) // what is not to come does not tell when it does not
	for _, tr := range troubles {
		a := c.nodeNamed(tr.node).agent
		if lines := a.complaints(from[tr.node]); len(lines) != 1 {
			t.Errorf("%s: want one line, got %d: %q", tr.node, len(lines), lines)
		}
		answer, err := a.ask("status")
		if err != nil || answer.Status.Ready {
			t.Errorf("%s: %+v, %v", tr.node, answer, err)
			continue
		}
		c.contains("margay show status on "+tr.node, a.tool("show", "status"), append(tr.want,
			"waiting for the first list of Namespace: "+tr.want[0])...)
		a.awaitProbe(503, tr.want...)
	}
	c.must(c.plane.Rejoin(c.nodes[1].Node))
	c.writeKubeconfig(trouble{node: "expired", user: good})
	c.must(os.WriteFile(tokenFile, []byte(token), 0o600))
	for _, name := range []string{"blackhole", "expired", "invalid"} {
		a := c.nodeNamed(name).agent
		a.awaitReady()
		if lines := a.complaints(from[name]); len(lines) != 1 {
			t.Errorf("%s, that is well again: %q", name, lines)
		}
	}
}

// settingsAreSaidOnce is about the file and the datastore of a live agent: the values from before stay.
func (c *cluster) settingsAreSaidOnce(user clientcmdapi.AuthInfo) {
	c.t.Helper()
	file := filepath.Join(c.dir, "settings.yaml")
	write := func(text string) { c.must(os.WriteFile(file, []byte(text), 0o600)) }
	write("flow-quota: 5000\n")
	c.writeKubeconfig(trouble{node: "settings", user: user})
	a := c.agentOn("settings")
	a.flags = append(a.flags, "--config-file", file)
	c.apply(configuration("v1", "default", "{defaultEndpointToHostAction: Drop}"))
	a.start()
	a.awaitSetting("default-endpoint-to-host-action", "Drop")
	a.awaitSetting("flow-quota", "5000")
	from := a.logged()
	write("flow-quota: many\n")
	c.apply(configuration("v1", "default", "{defaultEndpointToHostAction: Explode}"))
	c.once(a, from, "FelixConfiguration default, field defaultEndpointToHostAction \"Explode\"", "want Drop, Return or Accept",
		"default-endpoint-to-host-action stays Drop")
	c.once(a, from, file+" line 1", "flow-quota \"many\"")
	a.awaitSetting("default-endpoint-to-host-action", "Drop")
	a.awaitSetting("flow-quota", "5000")
	if lines := a.complaints(from); len(lines) != 2 {
		c.t.Errorf("want one line each, got %q", lines)
	}
	c.apply(configuration("v1", "default", "{defaultEndpointToHostAction: Accept}"))
	a.awaitSetting("default-endpoint-to-host-action", "Accept")
}

// awaitSetting waits until a setting of the running agent has the value.
func (a *agent) awaitSetting(name, value string) {
	a.c.t.Helper()
	testutil.WaitFor(a.c.t, soon, name+" to be "+value, func() bool {
		for line := range strings.Lines(a.tool("config")) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
				return fields[1] == value
			}
		}
		return false
	})
}

func (c *cluster) nodeNamed(name string) *node {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Name() == name {
			return n
		}
	}
	c.t.Fatalf("no node %s", name)
	return nil
}

// agentOn prepares the agent of a node without starting it.
func (c *cluster) agentOn(name string) *agent {
	c.t.Helper()
	n := c.nodeNamed(name)
	n.agent = c.newAgent(n, c.kubeconfigOf(name))
	return n.agent
}

func (c *cluster) kubeconfigOf(node string) string { return filepath.Join(c.dir, node+".kubeconfig") }

// writeKubeconfig writes a node's.
func (c *cluster) writeKubeconfig(tr trouble) {
	c.t.Helper()
	server := &clientcmdapi.Cluster{Server: tr.server, CertificateAuthorityData: tr.ca}
	if server.Server == "" {
		server.Server = c.plane.URL()
	}
	if server.CertificateAuthorityData == nil {
		server.CertificateAuthorityData = c.plane.CA()
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": server}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"margay": &tr.user},
		Contexts: map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "margay"}}, CurrentContext: "test",
	})
	c.must(err, os.WriteFile(c.kubeconfigOf(tr.node), content, 0o600))
}

// expired is the token as it will be when its time is over, with a good signature.
func (c *cluster) expired(token string) string {
	c.t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		c.t.Fatalf("not a token: %q", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	c.must(err)
	claims := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	c.must(decoder.Decode(&claims))
	now := time.Now()
	claims["iat"], claims["nbf"], claims["exp"] = now.Add(-time.Hour).Unix(), now.Add(-time.Hour).Unix(), now.Add(-30*time.Minute).Unix()
	text, err = json.Marshal(claims)
	c.must(err)
	keyPEM, err := os.ReadFile(filepath.Join(c.dir, "accounts.key"))
	c.must(err)
	block, _ := pem.Decode(keyPEM)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	c.must(err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	c.must(err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// otherAuthority is the certificate of an authority of another cluster, in PEM.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "elsewhere"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
