package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExplainSaysWhatIsWrongInOneLine(t *testing.T) {
	as := Identity{Server: "https://10.0.0.1:6443", From: `kubeconfig /k, context "c"`, User: "node", Credentials: "token file /t"}
	get := func(err error) error { return &url.Error{Op: "Get", URL: as.Server + "/api/v1/pods", Err: err} }
	dial := func(err error) error { return get(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	verify := func(err error) error { return get(&tls.CertificateVerificationError{Err: err}) }
	pods := schema.GroupResource{Resource: "pods"}
	tests := []struct {
		name                   string
		err                    error
		want                   string
		unreachable, untrusted bool
	}{
		{"nothing", nil, "", false, false},
		{"refused", dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
			`the API server at https://10.0.0.1:6443 refuses connections: is it running, and is the address right? (kubeconfig /k, context "c", user "node")`, true, false},
		{"no route", dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)),
			`no route to the API server at https://10.0.0.1:6443 (kubeconfig /k, context "c", user "node")`, true, false},
		{"time limit of the dialer", dial(os.ErrDeadlineExceeded),
			`the API server at https://10.0.0.1:6443 does not answer in time (kubeconfig /k, context "c", user "node")`, true, false},
		{"time limit of the request", get(context.DeadlineExceeded),
			`the API server at https://10.0.0.1:6443 does not answer in time (kubeconfig /k, context "c", user "node")`, true, false},
		{"no such host", dial(&net.DNSError{Name: "api.example", Err: "no such host", IsNotFound: true}),
			`host "api.example" of the API server at https://10.0.0.1:6443 does not exist (kubeconfig /k, context "c", user "node")`, true, false},
		{"name server is away", dial(&net.DNSError{Name: "api.example", Err: "server misbehaving", IsTemporary: true}),
			`the name "api.example" of the API server cannot be resolved: server misbehaving (kubeconfig /k, context "c", user "node")`, true, false},
		{"broken connection", get(io.ErrUnexpectedEOF),
			`the connection to the API server at https://10.0.0.1:6443 broke (kubeconfig /k, context "c", user "node")`, true, false},
		{"dead connection", get(errors.New("http2: client connection lost")),
			`the connection to the API server at https://10.0.0.1:6443 broke (kubeconfig /k, context "c", user "node")`, true, false},
		{"unknown authority", verify(x509.UnknownAuthorityError{}),
			`the certificate of the API server at https://10.0.0.1:6443 is signed by an authority that is not trusted; is certificate-authority-data of the right cluster? (kubeconfig /k, context "c", user "node")`, true, true},
		{"expired certificate", verify(x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time T is after U"}),
			`the certificate of the API server at https://10.0.0.1:6443 has expired or is not valid yet: current time T is after U; is the clock right? (kubeconfig /k, context "c", user "node")`, true, true},
		{"our certificate is refused", get(tls.AlertError(42)),
			`the API server at https://10.0.0.1:6443 rejects our TLS handshake: tls: bad certificate; we send token file /t (kubeconfig /k, context "c", user "node")`, true, true},
		{"no TLS there", get(http.ErrSchemeMismatch),
			`the server at https://10.0.0.1:6443 does not speak TLS; is it the API server? (kubeconfig /k, context "c", user "node")`, true, false},
		{"unauthorized", apierrors.NewUnauthorized("Unauthorized"),
			`the API server at https://10.0.0.1:6443 rejects our credentials (401): token file /t is expired or invalid (kubeconfig /k, context "c", user "node")`, false, false},
		{"forbidden", apierrors.NewForbidden(pods, "", errors.New(`User "system:serviceaccount:kube-system:margay" cannot list resource "pods" in API group "" at the cluster scope`)),
			`forbidden: user "system:serviceaccount:kube-system:margay" may not list pods at the cluster scope; grant that to it with a ClusterRole`, false, false},
		{"forbidden in a group", apierrors.NewForbidden(pods, "", errors.New(`User "margay" cannot watch resource "networkpolicies" in API group "networking.k8s.io" at the cluster scope`)),
			`forbidden: user "margay" may not watch networkpolicies.networking.k8s.io at the cluster scope; grant that to it with a ClusterRole`, false, false},
		{"forbidden in a namespace", apierrors.NewForbidden(pods, "x", errors.New(`User "margay" cannot create resource "events" in API group "" in the namespace "shop"`)),
			`forbidden: user "margay" may not create events in the namespace "shop"; grant that to it with a ClusterRole`, false, false},
		{"forbidden path", apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`User "margay" cannot get path "/readyz"`)),
			`forbidden: user "margay" may not get /readyz; grant that to it with a ClusterRole`, false, false},
		{"forbidden in other words", apierrors.NewForbidden(pods, "x", errors.New("a webhook says\nno")),
			`forbidden by the API server: pods "x" is forbidden: a webhook says no (kubeconfig /k, context "c", user "node")`, false, false},
		{"forbidden by Calico's API server", apierrors.NewForbidden(schema.GroupResource{Group: "projectcalico.org", Resource: "networkpolicies"}, "",
			errors.New("Operation on Calico tiered policy is forbidden")),
			`forbidden by Calico's API server: it lists policies of tiers for which the user has the right to get, list and watch tier.networkpolicies in API group projectcalico.org, and there is none; grant that without resourceNames, with a ClusterRole (kubeconfig /k, context "c", user "node")`, false, false},
		{"busy", apierrors.NewTooManyRequests("storage is (re)initializing", 1),
			`the API server is busy and asks to come back later (429): storage is (re)initializing`, false, false},
		{"unavailable", apierrors.NewServiceUnavailable("no endpoints"),
			`the API server at https://10.0.0.1:6443 is not available (503): no endpoints`, true, false},
		{"internal error", apierrors.NewInternalError(errors.New("etcd is on fire")),
			`the API server answers 500: Internal error occurred: etcd is on fire`, false, false},
		{"wrapped", fmt.Errorf("failed to list pods: %w", apierrors.NewTooManyRequests("slowly", 1)),
			`the API server is busy and asks to come back later (429): slowly`, false, false},
		{"end of the caller", get(context.Canceled), "Get \"https://10.0.0.1:6443/api/v1/pods\": context canceled", false, false},
		{"unknown", errors.New("some\n\x1b[31mthing"), "some [31mthing", true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Explain(tt.err, as); got != tt.want {
				t.Errorf("Explain:\n got %s\nwant %s", got, tt.want)
			}
			if got := Unreachable(tt.err); got != tt.unreachable {
				t.Errorf("Unreachable = %v", got)
			}
			if got := Untrusted(tt.err); got != tt.untrusted {
				t.Errorf("Untrusted = %v", got)
			}
		})
	}
}

func TestExplainIsBounded(t *testing.T) {
	if got := Explain(errors.New(strings.Repeat("é", 10_000)), Identity{}); len(got) > 700 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestExplainFollowsStatusesOfAnyMessage(t *testing.T) {
	err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Message: `User "a" cannot `}}
	if got := Explain(err, Identity{}); !strings.HasPrefix(got, "forbidden by the API server: ") {
		t.Error(got)
	}
}
