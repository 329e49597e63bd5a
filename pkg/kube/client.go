// Package kube makes clients of a Kubernetes API server for an agent, and describes in one line why a server cannot be
// used. Its callers decide which requests are made.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which API server to use, and as whom.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file, whose current context is used. It is read once. Only if the server
	// refuses the token or client certificate in it, the file is read again for the present one. Empty: the service
	// account of the pod that the process runs in. The variable KUBECONFIG is never read: an agent on a node must not
	// follow what some shell had set.
	Kubeconfig string
	// Version goes into the user agent, "margay/<version>".
	Version string
	// Dial makes connections instead of the usual dialer. Nil: TCP, with a time limit of DialTimeout and keep-alive
	// probes.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is the way to one API server. All clients made of it share its connections. Safe for concurrent use.
type Client struct {
	// Config is for clients that this package does not make; they must copy it before they change it. They should use
	// HTTP, so that connections are shared.
	Config *rest.Config
	HTTP   *http.Client
	// Identity says whose words count when a request fails.
	Identity Identity

	codecs serializer.CodecFactory
	plain  *rest.RESTClient // for paths that are of no group
}

// Time limits of a connection. A connection that died silently is noticed within readIdle+pingWait, or
// sooner by TCP's keep-alive probes.
const (
	// DialTimeout is how long a connection may take to be made.
	DialTimeout = 5 * time.Second

	readIdle = "15" // seconds without a frame after which HTTP/2 asks the other side for a sign of life
	pingWait = "10" // seconds it has for that

	// An agent lists and watches a dozen kinds, and writes little. These constants bound its requests to the server;
	// watches are not counted.
	queriesPerSecond = 20
	burst            = 40
)

// Open reads the configuration; it does not talk to the server. Its errors are one clear line each.
func Open(o Options) (*Client, error) {
	config, identity, err := load(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	shareHealthChecks()
	config.UserAgent = "margay/" + o.Version
	config.QPS, config.Burst = queriesPerSecond, burst
	config.Dial = o.Dial
	if config.Dial == nil {
		config.Dial = dialer((&net.Dialer{Timeout: DialTimeout, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 8 * time.Second, Interval: 4 * time.Second, Count: 3,
		}}).DialContext).twice
	}
	c := &Client{Config: config, Identity: identity}
	if c.HTTP, err = httpClient(config, o.Kubeconfig, identity.User); err != nil {
		return nil, fmt.Errorf("%s: %s", identity.From, oneLine(err.Error()))
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c.codecs = serializer.NewCodecFactory(scheme)
	if c.plain, err = c.REST(schema.GroupVersion{Version: "v1"}); err != nil {
		return nil, err
	}
	return c, nil
}

// shareHealthChecks sets how soon client-go's HTTP/2 connections are checked, for which it reads the environment only.
// Variables that the user has set stay.
func shareHealthChecks() {
	for name, value := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": readIdle, "HTTP2_PING_TIMEOUT_SECONDS": pingWait} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, value) // fails for impossible names only
		}
	}
}

// load reads the kubeconfig file, or what the cluster gives a pod.
func load(path string) (*rest.Config, Identity, error) {
	if path == "" {
		return loadInCluster()
	}
	id := Identity{From: "kubeconfig " + path}
	file, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}).Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, id, fmt.Errorf("kubeconfig %s does not exist", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, id, fmt.Errorf("kubeconfig %s may not be read by this user", path)
	case err != nil:
		return nil, id, fmt.Errorf("kubeconfig %s cannot be read: %s", path, strings.TrimPrefix(oneLine(cause(err).Error()), fmt.Sprintf("error loading config file %q: ", path)))
	case file.CurrentContext == "":
		return nil, id, fmt.Errorf("kubeconfig %s has no current context; set one with kubectl config use-context", path)
	}
	current := file.Contexts[file.CurrentContext]
	if current == nil {
		return nil, id, fmt.Errorf("kubeconfig %s has no context %q, which is its current context", path, file.CurrentContext)
	}
	cluster, user := file.Clusters[current.Cluster], file.AuthInfos[current.AuthInfo]
	switch {
	case cluster == nil:
		return nil, id, fmt.Errorf("kubeconfig %s, context %q: there is no cluster %q", path, file.CurrentContext, current.Cluster)
	case cluster.Server == "":
		return nil, id, fmt.Errorf("kubeconfig %s, cluster %q: no server address", path, current.Cluster)
	case user == nil && current.AuthInfo != "":
		return nil, id, fmt.Errorf("kubeconfig %s, context %q: there is no user %q", path, file.CurrentContext, current.AuthInfo)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, id, fmt.Errorf("kubeconfig %s, context %q: %s", path, file.CurrentContext, oneLine(err.Error()))
	}
	id.From = fmt.Sprintf("kubeconfig %s, context %q", path, file.CurrentContext)
	id.Server, id.User = config.Host, current.AuthInfo
	id.Credentials = credentials(config, path)
	renewToken(config, path, current.AuthInfo)
	return config, id, nil
}

// cause is the innermost of the errors that err wraps in a line.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func loadInCluster() (*rest.Config, Identity, error) {
	id := Identity{From: "service account of the pod"}
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, id, errors.New("not in a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set) " +
			"and no kubeconfig: name one with --kubeconfig")
	case err != nil:
		return nil, id, fmt.Errorf("the token of the pod's service account cannot be read: %w; is automountServiceAccountToken on?", err)
	case config.CAFile == "":
		return nil, id, errors.New("the certificate authority of the cluster cannot be read from " +
			"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	}
	id.Server, id.Credentials = config.Host, credentials(config, "")
	renewToken(config, "", "")
	return config, id, nil
}

// noCredentials is what credentials says of a client that has none.
const noCredentials = "no credentials"

// credentials says what the client shows to prove who it is.
func credentials(c *rest.Config, kubeconfig string) string {
	switch {
	case c.BearerTokenFile != "":
		return "token file " + c.BearerTokenFile
	case c.BearerToken != "":
		return "token in " + kubeconfig
	case c.CertFile != "":
		return "client certificate " + c.CertFile
	case len(c.CertData) > 0:
		return "client certificate in " + kubeconfig
	case c.ExecProvider != nil:
		return "command " + c.ExecProvider.Command
	case c.Username != "":
		return "password in " + kubeconfig
	}
	return noCredentials
}

// REST returns a client for the typed objects of a group and version among v1, networking.k8s.io/v1 and
// discovery.k8s.io/v1. It prefers the protobuf encoding and understands JSON.
func (c *Client) REST(gv schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.Config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = c.codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = strings.Join([]string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}, ",")
	client, err := rest.RESTClientForConfigAndClient(config, c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", c.Identity.From, oneLine(err.Error()))
	}
	return client, nil
}

// JSON returns a client for objects of a group and version, decoded from JSON as the given Go types, by the names of their kinds.
func (c *Client) JSON(gv schema.GroupVersion, types map[string]runtime.Object) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, gv)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // of errors
	for kind, o := range types {
		scheme.AddKnownTypeWithName(gv.WithKind(kind), o)
	}
	config := rest.CopyConfig(c.Config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(config, c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", c.Identity.From, oneLine(err.Error()))
	}
	return client, nil
}

// Dynamic returns a client for objects of any kind.
func (c *Client) Dynamic() (*dynamic.DynamicClient, error) {
	client, err := dynamic.NewForConfigAndClient(c.Config, c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", c.Identity.From, oneLine(err.Error()))
	}
	return client, nil
}

// Ready asks the server whether it is ready to serve. An error with an HTTP status says that something answered.
func (c *Client) Ready(ctx context.Context) error {
	return c.plain.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
}

// Groups returns the API groups that the server says it serves, each with its versions.
func (c *Client) Groups(ctx context.Context) (*metav1.APIGroupList, error) {
	list := &metav1.APIGroupList{}
	err := c.plain.Get().AbsPath("/apis").SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	if list.Groups == nil {
		return nil, errors.New("/apis did not answer with a list of API groups: is this an API server?")
	}
	return list, nil
}

// Resources returns the resources that the server says it serves of one group and version.
func (c *Client) Resources(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	err := c.plain.Get().AbsPath("/apis", gv.Group, gv.Version).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// namesPage is how many objects Names asks for at once.
const namesPage = 500

// Names returns the names of all objects of a resource that is cluster-wide. It asks for metadata alone.
func (c *Client) Names(ctx context.Context, gvr schema.GroupVersionResource) ([]string, error) {
	all, err := c.FirstNames(ctx, gvr, namesPage, math.MaxInt)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all))
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names, nil
}

// FirstNames returns the names of objects of a resource, of all namespaces, in the order of the server: of all, or of at least most.
// It asks for the metadata of so many as page at once.
func (c *Client) FirstNames(ctx context.Context, gvr schema.GroupVersionResource, page, most int) ([]types.NamespacedName, error) {
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	var names []types.NamespacedName
	for next := ""; ; {
		request := c.plain.Get().AbsPath("/apis", gvr.Group, gvr.Version, gvr.Resource).SetHeader("Accept", accept).MaxRetries(0).
			Param("limit", strconv.Itoa(page))
		if next != "" {
			request = request.Param("continue", next)
		}
		answer := request.Do(ctx)
		if err := answer.Error(); err != nil {
			return nil, err
		}
		text, err := answer.Raw()
		if err != nil {
			return nil, err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("list the names of %s: %w", gvr.GroupResource(), err)
		}
		if list.ResourceVersion == "" {
			return nil, fmt.Errorf("list the names of %s: the answer is no list: is this an API server?", gvr.GroupResource())
		}
		for _, o := range list.Items {
			names = append(names, types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
		}
		if next = list.Continue; next == "" || len(names) >= most {
			return names, nil
		}
	}
}

// Explain is Explain as this client's identity.
func (c *Client) Explain(err error) string { return Explain(err, c.Identity) }
