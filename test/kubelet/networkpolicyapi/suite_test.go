// Package networkpolicyapi is the conformance suite of ClusterNetworkPolicy, as SIG Network releases it.
package networkpolicyapi

import (
	"testing"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

// TestClusterNetworkPolicy runs the suite with all its features, in the cluster of the flag kubeconfig.
func TestClusterNetworkPolicy(t *testing.T) {
	access, err := config.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(access, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := v1alpha2.Install(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	s := suite.New(suite.Options{Client: c, ClientSet: set, KubeConfig: *access, EnableAllSupportedFeatures: true})
	s.Setup(t)
	s.Run(t, tests.ConformanceTests)
}
