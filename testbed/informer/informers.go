// Checks of informers: the notifications of their handlers and the final content of their stores.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// notifications records the notifications of a handler, in order.
type notifications struct {
	sync.Mutex
	lines []string
}

func (s *notifications) add(line string) {
	s.Lock()
	defer s.Unlock()
	s.lines = append(s.lines, line)
}

func (s *notifications) all() []string {
	s.Lock()
	defer s.Unlock()
	return slices.Clone(s.lines)
}

func (s *notifications) count(line string) int {
	count := 0
	for _, other := range s.all() {
		if other == line {
			count++
		}
	}
	return count
}

// handler records each ConfigMap by its name and the data that checks change.
func (s *notifications) handler() cache.ResourceEventHandler {
	text := func(object any) string {
		m := object.(*corev1.ConfigMap)
		return m.Name + "=" + m.Data["n"]
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { s.add("add " + text(object)) },
		UpdateFunc: func(old, object any) {
			if old.(*corev1.ConfigMap).ResourceVersion == object.(*corev1.ConfigMap).ResourceVersion {
				s.add("resync " + text(object))
			} else {
				s.add("update " + text(object))
			}
		},
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			s.add("delete " + text(object))
		},
	}
}

// watched runs an informer of the ConfigMaps that a selector matches, until the check ends.
func (b environment) watched(selector string, resync time.Duration) (*notifications, cache.SharedIndexInformer, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, resync, informers.WithNamespace(b.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = selector }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	received := &notifications{}
	if _, err := informer.AddEventHandler(received.handler()); err != nil {
		return nil, nil, err
	}
	factory.Start(b.Done())
	if !cache.WaitForCacheSync(b.Done(), informer.HasSynced) {
		return nil, nil, errors.New("the informer did not sync")
	}
	return received, informer, nil
}

func informerSeesChanges(b environment) error {
	if _, err := b.configMap("before", map[string]string{"check": "changes"}); err != nil {
		return err
	}
	received, informer, err := b.watched("check=changes", 0)
	if err != nil {
		return err
	}
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	object, err := b.configMap("a", map[string]string{"check": "changes"})
	for n := 1; err == nil && n <= 20; n++ {
		object.Data["n"] = fmt.Sprint(n)
		object, err = maps.Update(b, object, metav1.UpdateOptions{})
	}
	if err == nil {
		err = maps.Delete(b, "a", metav1.DeleteOptions{})
	}
	if err != nil {
		return err
	}
	expected := []string{"add before=0", "add a=0"}
	for n := 1; n <= 20; n++ {
		expected = append(expected, fmt.Sprint("update a=", n))
	}
	expected = append(expected, "delete a=20")
	if err := b.until("notification of the deletion", func() bool { return received.count("delete a=20") == 1 }); err != nil {
		return fmt.Errorf("%w: %v", err, received.all())
	}
	if !slices.Equal(received.all(), expected) {
		return fmt.Errorf("the handler received %v", received.all())
	}
	if keys := informer.GetStore().ListKeys(); !slices.Equal(keys, []string{b.namespace + "/before"}) {
		return fmt.Errorf("the store has %v", keys)
	}
	return nil
}

func informerResyncs(b environment) error {
	if _, err := b.configMap("again", map[string]string{"check": "resync"}); err != nil {
		return err
	}
	received, _, err := b.watched("check=resync", time.Second)
	if err != nil {
		return err
	}
	return b.until("second resync", func() bool { return received.count("resync again=0") >= 2 })
}

// The first watch fails with 410 Gone, which a real server returns only after minutes. The informer must list again, and miss no object.
func informerRelists(b environment) error {
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	var lists, watches atomic.Int32
	selected := func(options metav1.ListOptions) metav1.ListOptions {
		options.LabelSelector = "check=relist"
		return options
	}
	informer := cache.NewSharedIndexInformer(plainLists{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			return maps.List(ctx, selected(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if watches.Add(1) > 1 {
				return maps.Watch(ctx, selected(options))
			}
			// Created between the list and the watch: only a second list returns it.
			if _, err := b.configMap("between", map[string]string{"check": "relist"}); err != nil {
				return nil, err
			}
			return nil, apierrors.NewResourceExpired("too old resource version")
		},
	}}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	go informer.RunWithContext(b)
	if err := b.until("object that only a second list returns", func() bool {
		_, found, _ := informer.GetStore().GetByKey(b.namespace + "/between")
		return found
	}); err != nil {
		return err
	}
	if lists.Load() < 2 {
		return fmt.Errorf("%d lists, %d watches", lists.Load(), watches.Load())
	}
	return nil
}

// plainLists makes a reflector use lists instead of watch lists, so that they can be counted.
type plainLists struct{ *cache.ListWatch }

func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

func informerBySelector(b environment) error {
	received, informer, err := b.watched("check=selector,side=left", 0)
	if err != nil {
		return err
	}
	maps := b.client.CoreV1().ConfigMaps(b.namespace)
	object, err := b.configMap("mover", map[string]string{"check": "selector", "side": "left"})
	for _, side := range []string{"right", "left", "right"} {
		if err == nil {
			object.Labels["side"] = side
			object, err = maps.Update(b, object, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return err
	}
	expected := []string{"add mover=0", "delete mover=0", "add mover=0", "delete mover=0"}
	if err := b.until("second deletion", func() bool { return slices.Equal(received.all(), expected) }); err != nil {
		return fmt.Errorf("%w: %v", err, received.all())
	}
	if keys := informer.GetStore().ListKeys(); len(keys) > 0 {
		return fmt.Errorf("the store has %v", keys)
	}
	return nil
}

func metadataInformer(b environment) error {
	client, err := metadata.NewForConfig(b.config)
	if err != nil {
		return err
	}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if _, err := b.configMap("slim", nil); err != nil {
		return err
	}
	factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, b.namespace, nil)
	informer := factory.ForResource(maps).Informer()
	factory.Start(b.Done())
	return b.until("metadata of an object", func() bool {
		object, found, _ := informer.GetStore().GetByKey(b.namespace + "/slim")
		return found && object.(*metav1.PartialObjectMetadata).Name == "slim"
	})
}
